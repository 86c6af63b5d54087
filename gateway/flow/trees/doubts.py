"""Calls in doubt: a node was stopped while it acted elsewhere, so a person says what becomes of the call.

Nothing is repeated without their yes, and each yes counts for one run: one that is stopped again is asked about again.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from gateway.agent.loop import Allowed
from gateway.agent.policy import Act
from gateway.agent.toolbox import Yes
from gateway.domain.conversation.tools import Effect
from gateway.domain.conversation.transcript import ToolIntent, ToolResult
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.time import Clock
from gateway.domain.work.tasks import Assignment, Claim, Status
from gateway.domain.work.trees import DoubtAnswer
from gateway.flow.approvals.questions import Questions
from gateway.flow.trees.system_calls import NextStep
from gateway.flow.turn.loop import Turn
from gateway.flow.turn.opening import OpenedTurn
from gateway.flow.turn.runner import TurnResult
from gateway.store.connection.pool import Connection, Database
from gateway.store.transcript import sessions, tool_calls
from gateway.store.trust import reviews
from gateway.store.trust.reviews import DOUBT, ReviewQuestion, ReviewRow
from gateway.store.work import steps, tasks

RAN_RESULT = {"ran": True, "message": "A person says that this call took effect. Its result is lost; don't repeat it."}


@dataclass(frozen=True, slots=True)
class CallInDoubt:
    """A call without a result, and what it would do."""

    intent: ToolIntent
    act: Act


@dataclass(frozen=True, slots=True)
class Doubts:
    """Asks about the calls of nodes that may have run before a crash, and takes the answers."""

    database: Database
    questions: Questions
    clock: Clock

    async def settle(self, turn: Turn, assignment: Assignment) -> Allowed | NextStep | TurnResult:
        """The calls that may run now; or why the node can't go on yet.

        A person is asked once the time that the call may take is over, for until then it may be under way.
        """
        opened, toolbox = turn.opened, turn.environment.toolbox
        calls = [intent for intent in opened.pending() if not intent.handed]
        once = [intent for intent in calls if toolbox.effect(intent.call.name) is Effect.ONCE]
        acts = {each: await toolbox.described(each.call, opened.caller(turn.fence.cross)) for each in once}
        found = [CallInDoubt(each, act) for each, act in acts.items() if act is not None]
        harmless: Allowed = {each.ordinal: None for each, act in acts.items() if act is None}
        if not found:
            return harmless
        await turn.fence.outlast(max((toolbox.once_for(each.act.tool) for each in found), default=0.0))
        settled = await self.database.run(lambda tx: self._settle(tx, opened.run, assignment, opened, found))
        return settled if isinstance(settled, NextStep | TurnResult) else {**harmless, **settled}

    async def _settle(
        self, tx: Connection, run: Claim, assignment: Assignment, opened: OpenedTurn, found: Sequence[CallInDoubt]
    ) -> Allowed | NextStep | TurnResult:
        label = await sessions.lock_for(tx, opened.session, run)
        await tasks.progress(tx, run)
        asked = [(doubt, await self._asked(tx, run, assignment, doubt, label)) for doubt in found]
        answers = {row.name: _verdict(row) for _, row in asked if row.kind == "review"}
        if any(row.state == "open" for _, row in asked if row.kind == "review"):
            await tasks.suspend(tx, run, Status.NEEDS_HUMAN_REVIEW)
            return NextStep.ASK
        for name, answer in answers.items():
            if answer is None:
                return TurnResult.failed(f"nobody answered {name} in time")
            if answer is DoubtAnswer.GIVE_UP:
                return TurnResult.failed(f"a call may have run before a restart, and {name} gave it up")
        if ran := [doubt for doubt, row in asked if answers.get(row.name) is DoubtAnswer.RAN]:
            for doubt in ran:
                await self._conclude(tx, run, opened, doubt, label)
            return NextStep.GO_ON
        return {doubt.intent.ordinal: await _allowed(tx, doubt, row) for doubt, row in asked}

    async def _asked(
        self, tx: Connection, run: Claim, assignment: Assignment, doubt: CallInDoubt, label: Label
    ) -> ReviewRow:
        """The question about this call; one whose yes was used up is put again. Or the one for permission."""
        lasts, now, act = self.questions.lasts(), self.clock.now(), doubt.act
        question = ReviewQuestion(
            run.principal_id,
            run.principal_id,
            DOUBT,
            {"tool": act.tool, "arguments": storable(doubt.intent.call.arguments)},
            storable(act.change.preview),
            label,
            act.change.base,
            session=run.session_id,
            address=assignment.address,
            task=run.id,
            ordinal=doubt.intent.ordinal,
            lasts=lasts,
            act=act.kind,
            kind="review",
        )
        row = await reviews.lock(tx, (await reviews.ask(tx, question, now)).id)
        used = row.kind == "review" and row.started_at is not None
        return await reviews.reopen(tx, row, now + lasts) if used else row

    async def _conclude(self, tx: Connection, run: Claim, opened: OpenedTurn, doubt: CallInDoubt, label: Label) -> None:
        text = ToolResult(doubt.intent.call.id, json.dumps(RAN_RESULT))
        id = await tool_calls.conclude(tx, opened.session, run.principal_id, run.id, doubt.intent, text, label)
        await steps.tool_ran(tx, run.id, run.principal_id, doubt.act.tool, 0, ok=True, message=id)


async def _allowed(tx: Connection, doubt: CallInDoubt, row: ReviewRow) -> Yes | None:
    """The yes, which is used up with this; a call that asked for permission didn't run, and asks that again."""
    if row.kind == "approval":
        return None
    await reviews.start(tx, row.id)
    return Yes(doubt.act.kind, row.base)


def _verdict(row: ReviewRow) -> DoubtAnswer | None:
    if row.response is None:
        return None
    return DoubtAnswer.of(approved=bool(row.response["approved"]), comment=str(row.response["comment"]))

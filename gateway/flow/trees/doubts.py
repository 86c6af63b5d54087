"""Calls in doubt: a node was stopped during a call that acts outside, so a person decides whether it runs again.

Nothing is repeated without their approval, and an approval counts for one run: if that is stopped too, they are asked
again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from gateway.agent.loop import RepeatApprovals
from gateway.agent.policy import Act
from gateway.agent.toolbox import ApprovedCall
from gateway.domain.conversation.tools import Effect
from gateway.domain.conversation.transcript import ToolFinished, ToolIntent, ToolResult
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.work.tasks import Assignment, Claim, Status, TurnResult
from gateway.domain.work.trees import DoubtAnswer
from gateway.flow.approvals.questions import Questions
from gateway.flow.engine import Engine
from gateway.flow.trees.system_calls import NextStep, task_question
from gateway.flow.turn.loop import Turn
from gateway.flow.turn.opening import OpenedTurn
from gateway.store.connection.pool import Connection
from gateway.store.transcript import sessions, tool_calls
from gateway.store.trust import reviews
from gateway.store.trust.reviews import DOUBT, ReviewRow
from gateway.store.work import tasks

RAN_RESULT = {"ran": True, "message": "A person says that this call took effect. Its result is lost; don't repeat it."}


@dataclass(frozen=True, slots=True)
class Doubts:
    """Asks a person about calls of nodes that may have run before a crash, and applies the answers."""

    engine: Engine
    questions: Questions

    async def settle(self, turn: Turn, assignment: Assignment) -> RepeatApprovals | NextStep | TurnResult:
        """The calls that may run now, or why the node can't continue yet.

        A person is asked only after the time limit of the call, since it may still be running until then.
        """
        opened, toolbox = turn.opened, turn.environment.toolbox
        calls = [intent for intent in opened.pending() if not intent.handed]
        once = [intent for intent in calls if toolbox.effect(intent.call.name) is Effect.ONCE]
        acts = {each: await toolbox.describe(each.call, opened.caller(turn.fence)) for each in once}
        found = {each: act for each, act in acts.items() if act is not None}
        harmless: RepeatApprovals = {each.ordinal: None for each, act in acts.items() if act is None}
        if not found:
            return harmless
        await turn.fence.outlast(max((toolbox.seconds_under_way(act.tool) for act in found.values()), default=0.0))
        settled = await self.engine.database.run(lambda tx: self._settle(tx, opened, assignment, found))
        return settled if isinstance(settled, NextStep | TurnResult) else {**harmless, **settled}

    async def _settle(
        self, tx: Connection, opened: OpenedTurn, assignment: Assignment, found: Mapping[ToolIntent, Act]
    ) -> RepeatApprovals | NextStep | TurnResult:
        run = opened.run
        label = await sessions.lock_for(tx, opened.session, run)
        await tasks.progress(tx, run)
        asked = {each: await self._asked(tx, run, assignment, each, act, label) for each, act in found.items()}
        questions = [row for row in asked.values() if row.kind == "review"]
        answers = {row.name: _verdict(row) for row in questions}
        if any(row.state == "open" for row in questions):
            await tasks.suspend(tx, run, Status.NEEDS_HUMAN_REVIEW)
            return NextStep.ASK
        for name, answer in answers.items():
            if answer is None:
                return TurnResult.failed(f"nobody answered {name} in time")
            if answer is DoubtAnswer.GIVE_UP:
                return TurnResult.failed(f"a call may have run before a restart, and {name} gave it up")
        if ran := [intent for intent, row in asked.items() if answers.get(row.name) is DoubtAnswer.RAN]:
            for intent in ran:
                result = ToolResult(intent.call.id, json.dumps(RAN_RESULT))
                done = ToolFinished(intent, result, failed=False, duration_ms=0, label=label)
                await tool_calls.conclude(tx, opened.session, run.principal_id, run.id, intent, result, label, done)
            return NextStep.GO_ON
        return {intent.ordinal: await _allowed(tx, found[intent], row) for intent, row in asked.items()}

    async def _asked(
        self, tx: Connection, run: Claim, assignment: Assignment, intent: ToolIntent, act: Act, label: Label
    ) -> ReviewRow:
        """The question about this call, asked again if its approval was used, or its request for permission."""
        lasts, now = self.questions.settings().expire, self.engine.clock.now()
        arguments: JsonObject = {"tool": act.tool, "arguments": storable(intent.call.arguments)}
        question = task_question(run, assignment, DOUBT, arguments, storable(act.change.preview), label, lasts)
        question = replace(question, base=act.change.base, ordinal=intent.ordinal, act=act.kind)
        row = await reviews.lock(tx, (await reviews.ask(tx, question, now)).id)
        used = row.kind == "review" and row.started_at is not None
        return await reviews.reopen(tx, row, now + lasts) if used else row


async def _allowed(tx: Connection, act: Act, row: ReviewRow) -> ApprovedCall | None:
    """Use the approval. None for a call that only asked for permission: it didn't run, and asks again."""
    if row.kind == "approval":
        return None
    await reviews.start(tx, row.id)
    return ApprovedCall(act.kind, row.base)


def _verdict(row: ReviewRow) -> DoubtAnswer | None:
    if row.response is None:
        return None
    return DoubtAnswer.of(approved=bool(row.response["approved"]), comment=str(row.response["comment"]))

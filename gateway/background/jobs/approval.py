"""`approval`: what follows from a person's answer, or from none: the call runs once, and its run is told."""

import json

from gateway.agent.loop import MAY_HAVE_RUN
from gateway.agent.toolbox import ToolOutcome, Yes
from gateway.background.jobs import Services
from gateway.config.failpoints import Step
from gateway.domain.conversation.diff import legible
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.tools import Caller
from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.ids import ReviewId, SessionId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.approvals.own_calls import OWN_CALLS
from gateway.flow.turn.environment import AgentEnvironment
from gateway.flow.turn.steps import Fence
from gateway.store.connection.pool import Connection
from gateway.store.transcript import messages, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewRow, digest_of
from gateway.store.work import tasks, trees

LONGEST = 2_000
"""Characters of a result that are shown."""
NOT_THIS = "This is not the call that was approved; nothing was done."


_UNDONE = {
    "denied": "was denied",
    "expired": "expired without an answer",
    "closed": "was closed with the request it belonged to",
}


class Approval:
    """The runner of `approval` tasks."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._database = services.database
        self._questions = services.questions

    async def run(self, run: Claim) -> None:
        """Raises `RunLost`."""
        review, again = await self._database.run(lambda tx: _start(tx, run))
        outcome = None
        if review.state == "approved" and review.tool not in OWN_CALLS:
            self._services.failpoints.reach(Step.APPROVAL_STARTED)
            outcome = await self._called(run, review, again=again)
            self._services.failpoints.reach(Step.APPROVAL_RAN)
        await self._finish(run, review, outcome)

    async def give_up(self, run: Claim) -> None:
        """Out of attempts: the person hears that it may have run."""
        review, _ = await self._database.run(lambda tx: _start(tx, run))
        await self._finish(run, review, ToolOutcome(MAY_HAVE_RUN))

    async def _called(self, run: Claim, review: ReviewRow, *, again: bool) -> ToolOutcome:
        """The exact call; one that had begun before a crash is never run again."""
        if digest_of(review.tool, review.arguments, review.base, review.session_id) != review.digest:
            return ToolOutcome(NOT_THIS)
        await self._services.environments.refresh()
        toolbox, fence = (await self._environment(review)).toolbox, Fence(self._database, run)
        await toolbox.refresh()
        if again:
            await fence.outlast(toolbox.once_for(review.tool))
            return ToolOutcome(MAY_HAVE_RUN)
        caller = Caller(
            review.task_id or run.id,
            review.ordinal or 0,
            review.session_id or SessionId(run.id),
            review.address_id,
            self._questions.people.own_label(review.principal_id),
            fence=fence.cross,
        )
        call = ToolCall("", review.tool, json.dumps(review.arguments))
        return await toolbox.run(call, caller, yes=Yes(review.act, review.base))

    async def _environment(self, review: ReviewRow) -> AgentEnvironment:
        """What the call was asked for in: of a fork its own, with its files."""
        environments, fork = self._services.environments, None
        if review.task_id is not None:
            async with self._database.connection() as conn:
                fork = await trees.fork_of(conn, review.task_id)
        return environments.of(review.principal_id, fork)

    async def _finish(self, run: Claim, review: ReviewRow, outcome: ToolOutcome | None) -> None:
        said = await self._database.run(lambda tx: self._store(tx, run, review, outcome))
        if said is not None:
            self._services.proactive.committed(said)
        self._services.wake_scheduler()

    async def _store(
        self, tx: Connection, run: Claim, review: ReviewRow, outcome: ToolOutcome | None
    ) -> MessageRow | None:
        """The end of the task. A result is told where the question was put; the session that asked learns it anyway.

        A no and an expiry are told to that session alone: the person knows of the one, and did not care for the other.
        """
        at = await self._questions.place(tx, review) if review.state == "approved" else None
        asking = await _open_session(tx, review, at.session_id if at else None)
        await tasks.hold(tx, run)
        own, said = self._questions.people.own_label(review.principal_id), None
        text = AssistantText(await self._words(tx, review, own, outcome), final=False)
        label = max(own, outcome.label if outcome else own)
        if asking is not None:
            await sessions.taint(tx, asking, label)
            await messages.say(tx, asking, review.principal_id, text, label=label)
        if at is not None:
            said = await self._services.proactive.say(tx, at, at.principal_id, text, label=label, origin="gateway")
        await tasks.finish(tx, run, Status.COMPLETED, said=said.id if said else None)
        return said

    async def _words(self, tx: Connection, review: ReviewRow, own: Label, outcome: ToolOutcome | None) -> str:
        if review.state != "approved":
            return f"{review.name} ({review.tool}) {_UNDONE[review.state]}; nothing was done."
        now = self._services.clock.now()
        result = outcome.text if outcome else await OWN_CALLS[review.tool](tx, review, own, now)
        await reviews.mark_done(tx, review)
        allowed = "was approved" if review.grant_id is None else f"was allowed in advance by G{review.grant_id}"
        ran = "and may have run" if result == MAY_HAVE_RUN else "and has run"
        return f"{review.name} ({review.tool}) {allowed} {ran}:\n```\n{legible(result[:LONGEST])}\n```"


async def _start(tx: Connection, run: Claim) -> tuple[ReviewRow, bool]:
    await tasks.hold(tx, run)
    payload = await tasks.payload(tx, run.id)
    assert isinstance(payload["review"], int), "the payload of an approval"
    return await reviews.start(tx, ReviewId(payload["review"]))


async def _open_session(tx: Connection, review: ReviewRow, known: SessionId | None) -> SessionId | None:
    """The session that asked, held, while it goes on; None if it is the `known` one."""
    if review.session_id is None or review.session_id == known:
        return None
    await sessions.lock(tx, review.session_id)
    return review.session_id if await sessions.is_open(tx, review.session_id) else None


runner = Approval

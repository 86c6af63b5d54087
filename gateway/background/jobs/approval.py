"""`approval`: what follows from a person's answer, or from none: the call runs once, and its run is told."""

import json

from gateway.agent.calls import MAY_HAVE_RUN
from gateway.background.jobs import Services
from gateway.config.failpoints import Step
from gateway.domain.diff import legible
from gateway.domain.ids import ReviewId, SessionId
from gateway.domain.model import ToolCall
from gateway.domain.tasks import Claim, Status
from gateway.domain.tools import Caller, Effect
from gateway.domain.transcript import AssistantText
from gateway.flow.approvals.own_calls import OWN_CALLS
from gateway.store import reviews, sessions, tasks
from gateway.store.pool import Connection
from gateway.store.reviews import ReviewRow, digest_of
from gateway.store.transcript import messages
from gateway.store.transcript.messages import MessageRow

LONGEST_RESULT = 2_000
NOT_THIS = "This is not the call that was approved; nothing was done."


class Approval:
    """The runner of `approval` tasks."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(self, run: Claim) -> None:
        """Raises `RunLost`."""
        review, again = await self._services.database.run(lambda tx: _start(tx, run))
        if review.state != "approved":
            await self._services.database.run(lambda tx: self._tell_refused(tx, run, review))
            return
        self._services.failpoints.reach(Step.APPROVAL_STARTED)
        result = None if review.tool in OWN_CALLS else await self._result(run, review, again=again)
        self._services.failpoints.reach(Step.APPROVAL_RAN)
        await self._finish(run, review, result)

    async def give_up(self, run: Claim) -> None:
        """Out of attempts: the person hears that it may have run."""
        review, _ = await self._services.database.run(lambda tx: _start(tx, run))
        await self._finish(run, review, MAY_HAVE_RUN)

    async def _result(self, run: Claim, review: ReviewRow, *, again: bool) -> str:
        """Of the exact call; one that must not run twice and had begun before a crash is not run again."""
        if digest_of(review.tool, review.arguments, review.base) != review.digest:
            return NOT_THIS
        toolbox = self._services.environments.of(review.principal_id).toolbox
        if again and toolbox.effect(review.tool) is Effect.ONCE:
            return MAY_HAVE_RUN
        caller = Caller(
            review.task_id or run.id,
            review.ordinal or 0,
            review.session_id or SessionId(run.id),
            review.address_id,
            self._services.questions.own_label(review.principal_id),
        )
        call = ToolCall("", review.tool, json.dumps(review.arguments))
        return (await toolbox.run(call, caller, base=review.base)).text

    async def _finish(self, run: Claim, review: ReviewRow, result: str | None) -> None:
        said = await self._services.database.run(lambda tx: self._store(tx, run, review, result))
        if said is not None:
            self._services.proactive.committed(said)
        self._services.wake_scheduler()

    async def _store(self, tx: Connection, run: Claim, review: ReviewRow, result: str | None) -> MessageRow | None:
        """The result, told where the question was put and in the session that asked, with the end of the task."""
        at = await self._services.questions.place(tx, review)
        elsewhere = await _open_session(tx, review, at.session_id if at else None)
        await tasks.hold(tx, run)
        own, now = self._services.questions.own_label(review.principal_id), self._services.clock.now()
        if result is None:
            result = await OWN_CALLS[review.tool](tx, review, own, now)
        text = AssistantText(_told(review, result), final=False)
        if elsewhere is not None:
            await messages.say(tx, elsewhere, review.principal_id, text, label=own)
        said = None
        if at is not None:
            said = await self._services.proactive.say(tx, at, at.principal_id, text, label=own, origin="gateway")
        await reviews.mark_done(tx, review.id)
        await tasks.finish(tx, run, Status.COMPLETED, said=said.id if said else None)
        return said

    async def _tell_refused(self, tx: Connection, run: Claim, review: ReviewRow) -> None:
        """The agent learns of it in its next turn; the person knows, or did not care."""
        session = await _open_session(tx, review, None)
        await tasks.hold(tx, run)
        if session is not None and review.state in ("denied", "expired"):
            why = "was denied" if review.state == "denied" else "expired without an answer"
            text = AssistantText(f"{review.name} ({review.tool}) {why}; nothing was changed.", final=False)
            own = self._services.questions.own_label(review.principal_id)
            await messages.say(tx, session, review.principal_id, text, label=own)
        await tasks.finish(tx, run, Status.COMPLETED)


def _told(review: ReviewRow, result: str) -> str:
    return f"{review.name} ({review.tool}) was approved and has ended:\n```\n{legible(result[:LONGEST_RESULT])}\n```"


async def _start(tx: Connection, run: Claim) -> tuple[ReviewRow, bool]:
    await tasks.hold(tx, run)
    match await tasks.payload(tx, run.id):
        case {"review": int(id)}:
            return await reviews.start(tx, ReviewId(id))
        case other:
            raise AssertionError(f"not the payload of an approval: {other}")


async def _open_session(tx: Connection, review: ReviewRow, known: SessionId | None) -> SessionId | None:
    """The session that asked, held, while it goes on; None if it is the `known` one."""
    if review.session_id is None or review.session_id == known:
        return None
    await sessions.lock(tx, review.session_id)
    return review.session_id if await sessions.is_open(tx, review.session_id) else None


runner = Approval

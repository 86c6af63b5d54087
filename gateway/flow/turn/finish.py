"""Finish a run: one transaction stores its answer, what follows from that and the end of its task."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from gateway.config.failpoints import Failpoints, Step
from gateway.domain.ids import SessionId
from gateway.domain.work.tasks import Claim, Status
from gateway.flow.live import Live, MessageStored, TurnEnded
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.outbound.sender import Outbound
from gateway.flow.turn.runner import TurnResult
from gateway.store import sessions
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery.addresses import AddressRow
from gateway.store.engine import tasks
from gateway.store.transcript.messages import MessageRow

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Finished:
    """How a run ended: the status of its task, None when that goes back to the queue, and why it failed.

    `sent` is what it said in another chat than its own.
    """

    status: Status | None
    error: str | None = None
    sent: MessageRow | None = None
    result: str | None = None
    """For the task above it."""


Destination: TypeAlias = Callable[[Connection], Awaitable[AddressRow | None]]
"""Finds and locks the chat that hears of a run; None: there is none."""
Store: TypeAlias = Callable[[Connection, MessageRow, AddressRow | None], Awaitable[Finished]]
"""Stores what follows from the answer, in the same transaction; gets the answer and the destination."""


async def nowhere(_tx: Connection) -> AddressRow | None:
    """For a run whose own session is the chat."""
    return None


@dataclass(frozen=True, slots=True)
class RunFinisher:
    """Ends runs of every kind. Chats are locked first, then the run's own session, then its task."""

    database: Database
    outbound: Outbound
    proactive: ProactiveMessages
    live: Live
    failpoints: Failpoints

    async def finish(
        self,
        run: Claim,
        session: SessionId,
        result: TurnResult,
        store: Store,
        *,
        at: AddressRow | None = None,
        destination: Destination = nowhere,
    ) -> Finished:
        """`at` is the chat that the session belongs to. Raises `RunLost`; then nothing is stored."""

        async def work(tx: Connection) -> tuple[MessageRow, Finished]:
            to = await destination(tx)
            label = await sessions.lock_for(tx, session, run)
            answer = await result.store(tx, run, session, label=label, address=at.id if at else None)
            finished = await store(tx, answer, to)
            await _end(tx, run, finished)
            return answer, finished

        answer, finished = await self.database.run(work)
        self.failpoints.reach(Step.ANSWER_COMMITTED)
        status = finished.status.value if finished.status else "goes on"
        log.info("run.finished", kind=run.kind, task_id=str(run.id), message_id=answer.id, status=status)
        self.live.publish(session, MessageStored(answer.id))
        self.live.publish(session, TurnEnded(run))  # at once: nobody may see the answer beside what was written of it
        if finished.sent is not None:
            self.proactive.committed(finished.sent)
        self.outbound.wake()
        return finished


async def _end(tx: Connection, run: Claim, finished: Finished) -> None:
    if finished.status is None:
        await tasks.renew(tx, run)
    else:
        said = finished.sent.id if finished.sent else None
        await tasks.finish(tx, run, finished.status, error=finished.error, said=said, result=finished.result)

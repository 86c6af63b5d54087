"""The steps of a run: each is committed under the run's fence, and published as a live event.

The database stops the writes of a run that lost its task, but not its acts outside. So a run acts only within
`ACT_WITHIN` seconds of renewing its lease, and a later run judges an act only after that act's time limit. One gap
remains: a process that is suspended in that second, between reading the clock and the act itself."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, assert_never

import structlog

from gateway.config.failpoints import Failpoints, Step
from gateway.config.machine import boot_seconds
from gateway.domain.conversation.model import Reply, Restarted, TextDelta, ThinkingDelta, Waiting
from gateway.domain.conversation.transcript import Answered, ModelReplied, Steered, ToolFinished, TurnEvent
from gateway.domain.errors import DatabaseDown
from gateway.domain.ids import SessionId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import LEASE_SECONDS, Claim
from gateway.flow.live import Live, ModelAwaited, TextDropped, TextWritten, ThinkingWritten, ToolEnded, ToolStarted
from gateway.store.connection.pool import Connection, Database
from gateway.store.work import steps, tasks

log = structlog.get_logger(__name__)

ACT_WITHIN = 1.0
MAX_RENEWALS = 3
"""Renewals of the lease for one act, if each takes longer than `ACT_WITHIN`."""


@dataclass(slots=True)
class Fence:
    """The fence of one run. Its clock also counts the time that the process is stopped or the machine asleep."""

    database: Database
    run: Claim
    clock: Callable[[], float] = boot_seconds
    _renewed: float | None = None
    _unanswered: float | None = None

    async def commit(self, write: Callable[[Connection], Awaitable[None]], *, single: bool = False) -> None:
        """Run `write`, which must call `tasks.progress`, in one transaction; raises `RunLost`.

        `single`: by one statement, which renews the lease itself.
        """
        began = self.clock()
        await (self.database.run_alone if single else self.database.run)(write)
        self._renewed = began

    async def cross(self) -> None:
        """Renew the lease before an act, if needed. Waits while the database is unavailable: nothing has begun yet.

        Raises `RunLost`, and `DatabaseDown` if the database is too slow.
        """
        renewals = 0
        while self._renewed is None or self.clock() - self._renewed > ACT_WITHIN:
            if renewals == MAX_RENEWALS:
                raise DatabaseDown("The database didn't confirm within a second that a call may run; nothing was done")
            try:
                await self.commit(self._extend)
                renewals += 1
            except DatabaseDown as outage:
                log.warning("call.waits", error=str(outage))
                await asyncio.sleep(ACT_WITHIN)

    async def check(self) -> None:
        """Raise `RunLost` if a call that only reads is no longer wanted. An outage delays one such call by a second."""
        now = self.clock()
        renewed = self._renewed is not None and now - self._renewed <= ACT_WITHIN
        if renewed or (self._unanswered is not None and now - self._unanswered <= LEASE_SECONDS):
            return
        try:
            async with asyncio.timeout(ACT_WITHIN):
                await self.commit(self._extend)
        except (DatabaseDown, TimeoutError):
            self._unanswered = now

    async def outlast(self, limit: float) -> None:
        """Wait until an act of at most `limit` seconds has ended, begun by a process that lost this task."""
        if limit and self.run.silent_for is not None:
            await asyncio.sleep(ACT_WITHIN + limit - self.run.silent_for.total_seconds())

    async def _extend(self, tx: Connection) -> None:
        await tasks.extend(tx, self.run)


class Sink(Protocol):
    """Takes every event of a turn, in order, before the next one is made."""

    async def take(self, event: TurnEvent) -> None:
        """Process one event."""


@dataclass(slots=True)
class StepSink:
    """Commits each step of a run under its fence, before the loop continues.

    `label` is the session's: it rises with each result that the run reads, in the transaction that stores it.
    """

    fence: Fence
    session: SessionId
    label: Label
    failpoints: Failpoints

    async def take(self, event: TurnEvent) -> None:
        """Raises `RunLost` when the run no longer owns its task."""
        match event:
            case ModelReplied():
                self.failpoints.reach(Step.MODEL_REPLIED)
                if event.intents:
                    called = partial(tasks.step_called, run=self.fence.run, session=self.session, event=event)
                    await self.fence.commit(partial(called, label=self.label), single=True)
                    self.failpoints.reach(Step.STEP_COMMITTED)
            case ToolFinished():
                self.failpoints.reach(Step.TOOL_RAN)
                label = max(self.label, event.label)
                ended = partial(tasks.step_concluded, run=self.fence.run, session=self.session, done=event, label=label)
                await self.fence.commit(ended, single=True)
                self.label = label
                self.failpoints.reach(Step.RESULT_COMMITTED)
            case Steered():
                self.label = max(self.label, event.label)
                if (dropped := event.instead) is not None:
                    await self.fence.commit(lambda tx: self._drop(tx, dropped))
            case TextDelta() | ThinkingDelta() | Restarted() | Waiting() | Answered():
                pass
            case _:
                assert_never(event)

    async def _drop(self, tx: Connection, reply: Reply) -> None:
        await tasks.progress(tx, self.fence.run, self.session)
        await steps.model_called(tx, self.fence.run, reply)


class LiveSink:
    """Publishes the events of a turn to the listeners of its session."""

    def __init__(self, live: Live, session: SessionId) -> None:
        self._live = live
        self._session = session

    async def take(self, event: TurnEvent) -> None:
        """Never blocks."""
        match event:
            case TextDelta(text):
                self._live.publish(self._session, TextWritten(text))
            case ThinkingDelta(text):
                self._live.publish(self._session, ThinkingWritten(text))
            case Restarted():
                self._live.publish(self._session, TextDropped())
            case Waiting(attempt, seconds):
                self._live.publish(self._session, ModelAwaited(attempt.model, attempt.error, seconds))
            case ModelReplied(_, intents):
                for intent in intents:
                    call = intent.call
                    self._live.publish(self._session, ToolStarted(call.id, call.name, call.arguments))
            case ToolFinished(intent, result, failed, duration_ms):
                self._live.publish(self._session, ToolEnded(intent.call.id, result.text, failed, duration_ms))
            case Steered(instead=dropped) if dropped is not None:
                self._live.publish(self._session, TextDropped())
            case Steered() | Answered():
                pass
            case _:
                assert_never(event)

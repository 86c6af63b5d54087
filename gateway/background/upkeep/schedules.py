"""Queues due schedules and memory consolidations: one task for each slot, even if several processes look."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from gateway.agent.work.schedules import slot_assignment
from gateway.config.failpoints import Failpoints, Step
from gateway.domain.ids import PrincipalId
from gateway.domain.text.texts import one_line
from gateway.domain.time import Clock
from gateway.domain.work.tasks import Lane
from gateway.flow.people import NOT_LET_IN
from gateway.flow.signals import Signals
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import consolidation
from gateway.store.work import schedules, tasks
from gateway.store.work.schedules import Firing, ScheduleRow
from gateway.timetable.schedules import plan

BATCH = 25
BUSY_RETRY = timedelta(seconds=5)
MAX_ERROR_CHARS = 500

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Queues tasks of due schedules; several may run on one database.

    `may_run` says whether a principal still has access.
    """

    database: Database
    clock: Clock
    failpoints: Failpoints
    signals: Signals
    may_run: Callable[[Connection, PrincipalId], Awaitable[bool]]

    async def look(self) -> datetime | None:
        """Queue the tasks that are due now; return when to look again."""
        began = self.clock.now()
        await self.tick()
        next_due = await self.database.read(schedules.next_due)
        if next_due is not None and next_due <= began:  # it waits for the end of its last run, which sends no signal
            return self.clock.now() + BUSY_RETRY
        return next_due

    async def tick(self) -> int:
        """Queue the tasks that are due now; return how many."""
        queued = 0
        while True:
            seen, fired = await self.database.run(self._batch)
            if seen:
                self.failpoints.reach(Step.SCHEDULE_ENQUEUED)
            if fired:
                self.signals.tasks.set()
            queued += fired
            if seen < BATCH:
                return queued

    async def _batch(self, tx: Connection) -> tuple[int, int]:
        """Queue one batch in the transaction; return how many schedules were due, and how many tasks they became."""
        now = self.clock.now()
        rows = await schedules.due(tx, now, BATCH)
        if not rows:
            return 0, 0
        self.failpoints.reach(Step.SCHEDULE_DUE)
        allowed = {person: await self.may_run(tx, person) for person in {row.principal_id for row in rows}}
        firings: list[Firing] = []
        for row in rows:
            planned = _planned(row, now) if allowed[row.principal_id] else NOT_LET_IN
            if isinstance(planned, Firing):
                firings.append(planned)
            else:
                await _halt(tx, row, planned)
        return len(rows), await schedules.enqueue(tx, firings)


def _planned(row: ScheduleRow, now: datetime) -> Firing | str:
    """The task of a slot, or why the schedule can't continue. Never raises, so that the other schedules continue."""
    assert row.next_run_at is not None, "it is due"
    try:
        todo = plan(row.definition, row.next_run_at, now)
        if todo.slot is None:
            return Firing(row, todo, None)
        return Firing(row, todo, slot_assignment(row, todo.slot, now=now, missed=todo.missed))
    except ValueError as exc:
        return str(exc)
    except Exception as exc:
        log.exception("schedule.broken", schedule=row.id)
        return f"{type(exc).__name__}: {exc}"


async def _halt(tx: Connection, row: ScheduleRow, why: str) -> None:
    error = one_line(f"paused: {why}", MAX_ERROR_CHARS)
    log.error("schedule.paused", schedule=row.id, error=error)
    await schedules.halt(tx, row.id, error)


CONSOLIDATION_INTERVAL = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Consolidation:
    """Queues the daily consolidation of each memory that has new entries."""

    database: Database
    signals: Signals

    async def look(self) -> None:
        """Queue the consolidations that are due; several gateways on one database queue each once."""
        if await self.database.run(_queue_consolidations):
            self.signals.tasks.set()


async def _queue_consolidations(tx: Connection) -> int:
    due = await consolidation.due(tx)
    for principal in due:
        await tasks.create(tx, principal, "consolidate", Lane.AGENTS, dedupe=f"consolidate:{principal}")
    return len(due)

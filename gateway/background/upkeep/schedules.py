"""Queues due schedules and memory consolidation: one task for each slot, whichever process sees it first."""

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
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import consolidation
from gateway.store.work import schedules, tasks
from gateway.store.work.schedules import Firing, ScheduleRow
from gateway.timetable.schedules import plan

BATCH = 25
SHORT_REST = timedelta(seconds=5)
LONGEST_ERROR = 500

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Scheduler:
    """Several may run on one database.

    `woken` is called when there is something to claim. `may_run` says whether a principal is still let in.
    """

    database: Database
    clock: Clock
    failpoints: Failpoints
    woken: Callable[[], None]
    may_run: Callable[[Connection, PrincipalId], Awaitable[bool]]

    async def look(self) -> datetime | None:
        """Queue what is due now; returns when to look again."""
        began = self.clock.now()
        await self.tick()
        async with self.database.connection() as conn:
            next_due = await schedules.next_due(conn)
        if next_due is not None and next_due <= began:  # it waits for the end of its last run, which nobody announces
            return self.clock.now() + SHORT_REST
        return next_due

    async def tick(self) -> int:
        """Queue what is due now; returns how many tasks."""
        queued = 0
        while True:
            seen, fired = await self.database.run(self._batch)
            if seen:
                self.failpoints.reach(Step.SCHEDULE_ENQUEUED)
            if fired:
                self.woken()
            queued += fired
            if seen < BATCH:
                return queued

    async def _batch(self, tx: Connection) -> tuple[int, int]:
        """One transaction: how many were due, and how many tasks came of it."""
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
    """What to do, or why this one cannot go on, which must not keep the others from going on."""
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
    error = one_line(f"paused: {why}", LONGEST_ERROR)
    log.error("schedule.paused", schedule=row.id, error=error)
    await schedules.halt(tx, row.id, error)


CONSOLIDATION_INTERVAL = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Consolidation:
    """`woken` is called when there is a task to claim."""

    database: Database
    woken: Callable[[], None]

    async def look(self) -> None:
        """Queue what is due; several gateways on one database queue it once."""
        if await self.database.run(_queue_consolidations):
            self.woken()


async def _queue_consolidations(tx: Connection) -> int:
    due = await consolidation.due(tx)
    for principal in due:
        await tasks.create(tx, principal, "consolidate", Lane.AGENTS, dedupe=f"consolidate:{principal}")
    return len(due)

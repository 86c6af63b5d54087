"""Queues due schedules and memory consolidations: one task for each slot, even if several processes look."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from gateway.agent.work.schedules import slot_assignment
from gateway.config.failpoints import Step
from gateway.domain.text.texts import one_line
from gateway.domain.work.tasks import Lane
from gateway.flow.engine import Engine
from gateway.flow.people import NOT_LET_IN
from gateway.store.connection.pool import Connection
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
    """Queues tasks of due schedules; several may run on one database."""

    engine: Engine

    async def look(self) -> datetime | None:
        """Queue the tasks that are due now; return when to look again."""
        began = self.engine.clock.now()
        await self.tick()
        next_due = await self.engine.database.read(schedules.next_due)
        if next_due is not None and next_due <= began:  # it waits for the end of its last run, which sends no signal
            return self.engine.clock.now() + BUSY_RETRY
        return next_due

    async def tick(self) -> int:
        """Queue the tasks that are due now; return how many."""
        queued = 0
        while True:
            seen, fired = await self.engine.database.run(self._batch)
            if seen:
                self.engine.failpoints.reach(Step.SCHEDULE_ENQUEUED)
            if fired:
                self.engine.signals.tasks.set()
            queued += fired
            if seen < BATCH:
                return queued

    async def _batch(self, tx: Connection) -> tuple[int, int]:
        """Queue one batch in the transaction; return how many schedules were due, and how many tasks they became."""
        now = self.engine.clock.now()
        rows = await schedules.due(tx, now, BATCH)
        if not rows:
            return 0, 0
        self.engine.failpoints.reach(Step.SCHEDULE_DUE)
        everybody = {row.principal_id for row in rows}
        allowed = {person: await self.engine.people.lets_in(tx, person) for person in everybody}
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


async def queue_consolidations(engine: Engine) -> None:
    """Queue the daily consolidation of each memory with new entries; several gateways on one database queue it once."""
    if await engine.database.run(_queue_consolidations):
        engine.signals.tasks.set()


async def _queue_consolidations(tx: Connection) -> int:
    due = await consolidation.due(tx)
    for principal in due:
        await tasks.create(tx, principal, "consolidate", Lane.AGENTS, dedupe=f"consolidate:{principal}")
    return len(due)

"""Schedules under a clock that a test moves: what was planned, and what became of each slot."""

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

from gateway.background.upkeep.schedules import Scheduler
from gateway.config.failpoints import Failpoints
from gateway.config.machine import SystemClock
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.domain.work.schedules import Misfire, Once, Recurring, ScheduleDefinition
from gateway.flow.signals import Signals
from gateway.store.connection.pool import Connection, Database
from gateway.store.work import schedules
from gateway.store.work.schedules import ScheduleRow
from gateway.timetable.cron import Cron
from gateway.timetable.schedules import next_slot
from tests.fakes.engine import engine_on
from tests.store.world import World

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Hand(SystemClock):
    """Stands still until it is moved."""

    def __init__(self, at: datetime = START) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at


async def everybody(_tx: Connection, _principal: PrincipalId) -> bool:
    """All are let in."""
    return True


def scheduler_on(
    database: Database,
    clock: SystemClock,
    *,
    failpoints: Failpoints | None = None,
    signals: Signals | None = None,
    may_run: Callable[[Connection, PrincipalId], Awaitable[bool]] = everybody,
) -> Scheduler:
    people = SimpleNamespace(lets_in=may_run)
    return Scheduler(engine_on(database, people=people, clock=clock, failpoints=failpoints, signals=signals))


def recurring(
    cron: str, zone: str = "UTC", misfire: Misfire = Misfire.RUN_ONCE, name: str = "tea"
) -> ScheduleDefinition:
    return ScheduleDefinition(name, "Make tea.", Recurring(cron), zone, misfire)


def once(at: datetime, name: str = "dentist") -> ScheduleDefinition:
    return ScheduleDefinition(name, "Remind me.", Once(at))


@dataclass
class Timeline:
    """One gateway's schedules; what it runs ends at once."""

    world: World
    clock: Hand = field(default_factory=Hand)

    def __post_init__(self) -> None:
        self.scheduler = scheduler_on(self.world.database, self.clock)

    async def plan(self, definition: ScheduleDefinition) -> ScheduleRow:
        """Enter it, with its next slot from now on."""
        async with self.world.database.connection() as conn:
            row = await schedules.add(
                conn,
                self.world.principal,
                definition,
                next_run_at=next_slot(definition, self.clock.now()),
                origin="fake",
                label=Label.OWNER,
            )
        assert row is not None
        return row

    async def reach(self, moment: datetime) -> None:
        """It is that late; all that is due is run to its end."""
        self.clock.at = moment
        while await self.scheduler.tick():
            await self.world.do("update tasks set status = 'completed' where status = 'pending'")

    async def ran(self, row: ScheduleRow) -> list[datetime]:
        """The slots that tasks were made for, by task, in their order."""
        return await self.world.column(
            "select (input->>'slot')::timestamptz from tasks where (input->>'schedule')::bigint = $1 order by seq",
            row.id,
        )

    async def missed(self, row: ScheduleRow) -> list[datetime]:
        """The slots that are counted as missed."""
        slots: list[datetime] = []
        async with self.world.database.connection() as conn:
            for run in await schedules.runs(conn, row.id, limit=10_000):
                slots += _from(row, run.missed_since, run.missed)
        return slots

    async def accounted(self, row: ScheduleRow) -> Counter[datetime]:
        """How often each slot was dealt with."""
        return Counter([*await self.ran(row), *await self.missed(row)])


def _from(row: ScheduleRow, first: datetime | None, number: int) -> list[datetime]:
    """So many slots in a row."""
    if first is None:
        return []
    when, slots = row.definition.when, [first]
    while len(slots) < number:
        assert isinstance(when, Recurring)
        following = Cron(when.cron, row.definition.zone).after(slots[-1])
        assert following is not None
        slots.append(following)
    return slots

"""Time itself at fault: clocks that are put forward and back, calendars with odd days, machines that sleep."""

import asyncio
import random
import shutil
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from gateway.domain.work.schedules import Misfire
from gateway.store.connection.pool import Database
from gateway.store.work.schedules import ScheduleRow
from tests.background.timeline import HOUR, Hand, Timeline, once, recurring, scheduler_on
from tests.chaos.conftest import Judge
from tests.chaos.faults import Fault
from tests.chaos.ledger import Outcome
from tests.chaos.test_clock import WallClock
from tests.fakes.openai_server import FakeModels
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, configured
from tests.store.world import found

ZONES = (
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Chicago",
    "America/Denver",
    "America/Halifax",
    "America/Havana",
    "America/Los_Angeles",
    "America/Miquelon",
    "America/New_York",
    "America/Nuuk",
    "America/Santiago",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Jerusalem",
    "Asia/Nicosia",
    "Atlantic/Azores",
    "Australia/Adelaide",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Europe/Athens",
    "Europe/Berlin",
    "Europe/Chisinau",
    "Europe/Dublin",
    "Europe/Lisbon",
    "Europe/London",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Pacific/Norfolk",
)
MINUTE = timedelta(minutes=1)
POLICIES = tuple(Misfire)


@pytest.fixture
async def timeline(database: Database) -> Timeline:
    return Timeline(await found(database))


async def verdict(timeline: Timeline, planned: Iterable[tuple[ScheduleRow, set[datetime]]]) -> Outcome:
    """Each slot that was to come was run or counted as missed, once, and no other was."""
    lost: list[str] = []
    twice: list[str] = []
    tries = 0
    for row, slots in planned:
        dealt_with = await timeline.accounted(row)
        name, tries = f"{row.definition.name}:", tries + len(slots)
        lost += [f"{name} {slot:%F %R}" for slot in sorted(slots - set(dealt_with))]
        twice += [f"{name} {slot:%F %R}" for slot, times in dealt_with.items() if times > 1 or slot not in slots]
    return Outcome(tries=tries, lost=tuple(lost), duplicated=tuple(twice))


def between(
    start: datetime, end: datetime, fits: Callable[[datetime], bool], step: timedelta = MINUTE
) -> set[datetime]:
    """The instants after `start` up to `end` that fit, looked for step by step."""
    steps = int((end - start) / step)
    return {at for number in range(1, steps + 1) if fits(at := start + number * step)}


# --- daylight saving ---


def changes(zone: str) -> list[datetime]:
    """The instants of 2026 at which the zone's clocks are changed, to the minute."""
    there, instants = ZoneInfo(zone), [datetime(2026, 1, 1, tzinfo=UTC) + hours * HOUR for hours in range(365 * 24)]
    offsets = [at.astimezone(there).utcoffset() for at in instants]
    return [before for before, old, new in zip(instants, offsets, offsets[1:], strict=False) if old != new]


def odd_time(zone: str, before: datetime) -> datetime:
    """A wall-clock time that does not exist on the day after this instant's hour, or is there twice."""
    there = ZoneInfo(zone)
    at = next(
        at
        for minutes in range(1, 61)
        if (at := before + minutes * MINUTE).astimezone(there).utcoffset() != before.astimezone(there).utcoffset()
    )
    old, new = (at - MINUTE).astimezone(there), at.astimezone(there)
    return min(old.replace(tzinfo=None) + MINUTE, new.replace(tzinfo=None)) + 15 * MINUTE


def half_hours(zone: str, start: datetime, end: datetime) -> set[datetime]:
    """As real time passes, whatever the clocks there do."""
    there = ZoneInfo(zone)
    return between(start, end, lambda at: at.astimezone(there).minute in (0, 30))


async def live_through(timeline: Timeline, chance: random.Random, change: datetime, zones: Iterable[str]) -> Outcome:
    """Two days and a half around a change of the clocks, of which the gateway sees an instant now and then."""
    start, end = change - 30 * HOUR, change + 30 * HOUR
    timeline.clock.at = start
    planned: list[tuple[ScheduleRow, str]] = []
    for zone in zones:
        odd = odd_time(zone, change)
        daily = recurring(f"{odd.minute} {odd.hour} * * *", zone, chance.choice(POLICIES), f"{change:%F} {zone} daily")
        policy = chance.choice([Misfire.RUN_ONCE, Misfire.SKIP])
        often = recurring("*/30 * * * *", zone, policy, f"{change:%F} {zone}")
        planned += [(await timeline.plan(daily), zone), (await timeline.plan(often), zone)]
    while timeline.clock.at < end:
        await timeline.reach(min(end, timeline.clock.at + chance.choice([7, 30, 95, 480]) * MINUTE))
    await timeline.world.do("update schedules set paused_at = now()")
    expected: list[tuple[ScheduleRow, set[datetime]]] = []
    for (row, zone), (often, _) in zip(planned[::2], planned[1::2], strict=True):
        days = sorted({start, end, *await timeline.accounted(row)})
        assert all(22 * HOUR <= later - earlier <= 26 * HOUR for earlier, later in pairwise(days[1:-1])), "one a day"
        assert max(days[1] - start, end - days[-2]) <= 26 * HOUR
        expected += [(row, set(days[1:-1])), (often, half_hours(zone, start, end))]
    return await verdict(timeline, expected)


@pytest.mark.fault(Fault.DST)
async def test_clocks_put_forward_and_back_lose_no_slot_and_repeat_none(
    timeline: Timeline, chance: random.Random, judge: Judge
) -> None:
    by_change: dict[datetime, list[str]] = {}
    for zone in ZONES:
        for change in changes(zone):
            by_change.setdefault(change, []).append(zone)
    assert len(by_change) > 20
    for change, zones in by_change.items():
        judge(Fault.DST, await live_through(timeline, chance, change, zones))


# --- the calendar ---

FIVE_YEARS = [datetime(2027, 12, 1, tzinfo=UTC), datetime(2032, 3, 5, tzinfo=UTC)]


@pytest.mark.fault(Fault.CALENDAR)
@pytest.mark.parametrize(
    ("start", "end", "cron", "fits"),
    [
        (*FIVE_YEARS, "0 9 29 2 *", lambda at: (at.month, at.day, at.hour) == (2, 29, 9)),
        (*FIVE_YEARS, "0 9 31 * *", lambda at: (at.day, at.hour) == (31, 9)),
        (*FIVE_YEARS, "0 0 1 1 *", lambda at: (at.month, at.day, at.hour) == (1, 1, 0)),
        (
            datetime(2027, 12, 30, tzinfo=UTC),
            datetime(2028, 1, 3, tzinfo=UTC),
            "0 */6 * * *",
            lambda at: at.hour % 6 == 0,
        ),
        (
            datetime(2038, 1, 18, tzinfo=UTC),
            datetime(2038, 1, 20, 12, tzinfo=UTC),
            "0 * * * *",
            lambda _: True,
        ),
    ],
    ids=["leap day", "month end", "new year", "year end", "2038"],
)
async def test_odd_days_of_the_calendar_are_days(
    timeline: Timeline,
    chance: random.Random,
    judge: Judge,
    start: datetime,
    end: datetime,
    cron: str,
    fits: Callable[[datetime], bool],
) -> None:
    timeline.clock.at = start
    rows = [await timeline.plan(recurring(cron, misfire=policy, name=policy)) for policy in POLICIES]
    while timeline.clock.at < end:
        await timeline.reach(min(end, timeline.clock.at + (end - start) / chance.randint(5, 20)))
    expected = between(start, end, fits, HOUR)
    assert expected
    judge(Fault.CALENDAR, await verdict(timeline, [(row, expected) for row in rows]))


# --- clocks that are set, machines that sleep ---


@pytest.mark.fault(Fault.CLOCK_SCHEDULES)
@pytest.mark.parametrize("hours", [(1, 0), (-1, 0), (1, -1, 24, -24, 0)], ids=["forth", "back", "both"])
async def test_a_clock_that_is_set_fires_no_slot_twice_and_drops_none(
    timeline: Timeline, judge: Judge, hours: tuple[int, ...]
) -> None:
    start = now = latest = timeline.clock.at
    rows = [await timeline.plan(recurring("*/20 * * * *", misfire=policy, name=policy)) for policy in POLICIES]
    reminder = await timeline.plan(once(start + 40 * MINUTE))
    for offset in hours:
        for _ in range(9):
            now += 10 * MINUTE
            await timeline.reach(now + offset * HOUR)
            latest = max(latest, now + offset * HOUR)
    expected = between(start, latest, lambda at: at.minute % 20 == 0)
    wanted = [(row, expected) for row in rows]
    judge(Fault.CLOCK_SCHEDULES, await verdict(timeline, [*wanted, (reminder, {start + 40 * MINUTE})]))


@pytest.mark.chaos
@pytest.mark.fault(Fault.CLOCK_SCHEDULES)
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
async def test_a_running_gateway_notices_that_its_clock_was_set(
    process: GatewayProcess, telegram: FakeTelegram, models: FakeModels, judge: Judge, tmp_path: Path
) -> None:
    """It takes twenty seconds at most, and putting it back brings nothing again."""
    clock = WallClock(tmp_path)
    process.configure(configured(telegram, models))
    await process.start(**clock.environ)
    telegram.say("hello mk0x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    await process.rows(
        """insert into schedules (principal_id, address_id, name, prompt, run_at, origin, next_run_at)
           select principal_id, id, 'tea', 'Say mk1x.', now() + interval '50 minutes', 'telegram',
                  now() + interval '50 minutes' from addresses"""
    )
    clock.step(3600)
    await telegram.wait_for(lambda tg: any("fin1x" in sent.text for sent in tg.sent))
    clock.step(0)
    await process.kill()
    await process.start(**clock.environ)
    telegram.say("hello again mk2x", OWNER)
    await telegram.wait_for(lambda tg: any("fin2x" in sent.text for sent in tg.sent))
    assert sum("fin1x" in sent.text for sent in telegram.sent) == 1
    assert len(await process.rows("select from tasks where kind = 'agent'")) == 1
    judge(Fault.CLOCK_SCHEDULES, Outcome())


@pytest.mark.fault(Fault.ASLEEP)
async def test_a_machine_that_slept_makes_up_for_it_as_each_schedule_says(timeline: Timeline, judge: Judge) -> None:
    start, awake = timeline.clock.at, timeline.clock.at + 8 * HOUR + 10 * MINUTE
    rows = {policy: await timeline.plan(recurring("0 * * * *", misfire=policy, name=policy)) for policy in POLICIES}
    reminder = await timeline.plan(once(start + 5 * HOUR))
    slots = [start + number * HOUR for number in range(1, 9)]
    await timeline.reach(awake)
    assert await timeline.ran(rows[Misfire.RUN_ONCE]) == slots[-1:]
    assert await timeline.ran(rows[Misfire.SKIP]) == []
    assert await timeline.ran(rows[Misfire.CATCH_UP]) == slots
    assert await timeline.ran(reminder) == [start + 5 * HOUR]
    judge(Fault.ASLEEP, await verdict(timeline, [(row, set(slots)) for row in rows.values()]))


@pytest.mark.fault(Fault.TWO_SCHEDULERS)
async def test_two_that_look_at_once_fire_each_slot_once(
    timeline: Timeline, dsn: str, chance: random.Random, judge: Judge
) -> None:
    start = timeline.clock.at
    rows = [
        await timeline.plan(recurring("0 * * * *", misfire=chance.choice(POLICIES), name=str(n))) for n in range(120)
    ]
    async with await Database.connect(dsn) as other:
        for hour in range(1, 5):
            clocks = [Hand(start + hour * HOUR + chance.randint(0, 50) * timedelta(seconds=1)) for _ in range(4)]
            databases = (timeline.world.database, other, timeline.world.database, other)
            ticks = [scheduler_on(on, clock).tick() for on, clock in zip(databases, clocks, strict=True)]
            assert sum(await asyncio.gather(*ticks)) == len(rows)
            await timeline.world.do("update tasks set status = 'completed'")
    expected = {start + hour * HOUR for hour in range(1, 5)}
    judge(Fault.TWO_SCHEDULERS, await verdict(timeline, [(row, expected) for row in rows]))

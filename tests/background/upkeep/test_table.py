"""The table of jobs, on the real APScheduler."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from structlog.testing import capture_logs

from gateway.background.upkeep import timers as table_module
from gateway.background.upkeep.timers import Interval, JobTable, Look
from gateway.config.machine import SystemClock
from gateway.domain.errors import DatabaseDown
from gateway.flow.signals import Wakeup
from tests.fakes.eventually import eventually

DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def _only_dates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing wakes a job but its date."""
    monkeypatch.setattr(table_module, "CHECK_SECONDS", 3600.0)


@asynccontextmanager
async def running(signals: Mapping[str, Wakeup] = {}, **looks: Look) -> AsyncIterator[JobTable]:
    table = JobTable(looks, SystemClock(), signals)
    task = asyncio.create_task(table.run())
    try:
        async with asyncio.timeout(20):
            yield table
    finally:
        task.cancel()
        await asyncio.wait([task])


@dataclass
class Job:
    """Names these dates one after another, then none; an error is raised."""

    dates: Iterator[datetime | Exception]
    looks: asyncio.Queue[datetime] = field(default_factory=asyncio.Queue)

    async def look(self) -> datetime | None:
        self.looks.put_nowait(datetime.now(UTC))
        date = next(self.dates, None)
        if isinstance(date, Exception):
            raise date
        return date


async def test_a_job_is_done_at_the_date_it_names_and_not_before() -> None:
    date = datetime.now(UTC) + timedelta(seconds=1)
    job = Job(iter([date]))
    async with running(tea=job.look) as table:
        await job.looks.get()
        await eventually(lambda: table.dates == {"tea": date})
        assert await job.looks.get() >= date
        await eventually(lambda: table.dates == {"tea": None})


async def test_a_date_that_has_passed_is_late_and_not_missed() -> None:
    job = Job(iter([datetime.now(UTC) - DAY]))
    async with running(tea=job.look):
        for _ in range(2):
            await job.looks.get()


async def test_the_table_shows_each_job_with_its_date_and_waking_one_wakes_no_other() -> None:
    tea, tax = datetime.now(UTC) + DAY, datetime.now(UTC) + 30 * DAY
    jobs = [Job(iter([tea, tea + DAY])), Job(iter([tax])), Job(iter([]))]
    wakeup = Wakeup()
    async with running({"tea": wakeup}, tea=jobs[0].look, tax=jobs[1].look, off=jobs[2].look) as table:
        await eventually(lambda: table.dates == {"tea": tea, "tax": tax, "off": None})
        wakeup.set()
        await eventually(lambda: table.dates == {"tea": tea + DAY, "tax": tax, "off": None})
    assert [job.looks.qsize() for job in jobs] == [2, 1, 1]


@pytest.mark.parametrize("problem", [DatabaseDown("away"), ZeroDivisionError("by zero")])
async def test_one_that_fails_is_logged_and_tried_again_and_holds_up_no_other(
    monkeypatch: pytest.MonkeyPatch, problem: Exception
) -> None:
    monkeypatch.setattr(table_module, "backoff", lambda failures: 0.01 * failures)
    bad, good = Job(iter([problem] * 3)), Job(iter([datetime.now(UTC)] * 3))
    errors = set[str]()
    with capture_logs() as logs:
        async with running(bad=bad.look, good=good.look) as table:
            for _ in range(4):
                await bad.looks.get()
                await good.looks.get()
                errors.add(getattr(table.jobs["bad"].last, "error", ""))
        assert str(problem) in errors
        assert table.jobs["good"].last
        assert not table.jobs["good"].last.error
    assert [(log["event"], log["job"], log["error"]) for log in logs] == [("job.failed", "bad", str(problem))] * 3
    assert {log["exc_info"] for log in logs} == {isinstance(problem, ZeroDivisionError)}


async def test_one_that_takes_long_is_not_run_twice_at_once_and_holds_up_no_other() -> None:
    begun, done, going_on = 0, asyncio.Event(), Job(iter([datetime.now(UTC)] * 3))

    async def slow() -> None:
        nonlocal begun
        begun += 1
        await done.wait()

    wakeup = Wakeup()
    async with running({"slow": wakeup}, slow=slow, other=going_on.look) as table:
        await eventually(lambda: begun == 1)
        wakeup.set()
        for _ in range(4):
            await going_on.looks.get()
        assert (begun, table.dates["slow"]) == (1, None)
        done.set()
        await eventually(lambda: begun == 2)


async def test_a_job_that_names_its_date_again_is_not_armed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "CHECK_SECONDS", 0.01)
    date, armed = datetime.now(UTC) + DAY, list[str]()
    job = Job(date + timedelta(milliseconds=number % 7) for number in itertools.count())
    add = AsyncIOScheduler.add_job

    def add_job(timers: AsyncIOScheduler, *arguments: Any, **more: Any) -> Any:
        armed.append(more["id"])
        return add(timers, *arguments, **more)

    monkeypatch.setattr(AsyncIOScheduler, "add_job", add_job)
    async with running(tea=job.look) as table:
        for _ in range(10):
            await job.looks.get()
        assert armed == ["tea"]
        assert table.dates["tea"] is not None


async def test_the_check_restores_a_job_whose_timer_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_module, "CHECK_SECONDS", 0.05)
    date = datetime.now(UTC) + DAY
    job = Job(iter([date] * 1000))
    async with running(tea=job.look) as table:
        await eventually(lambda: table.dates == {"tea": date})
        assert table._timers is not None
        table._timers.remove_all_jobs()
        assert table.dates == {"tea": None}
        await eventually(lambda: table.dates == {"tea": date})


class Hands(SystemClock):
    """Two clocks that a test moves."""

    def __init__(self) -> None:
        self.wall, self.seconds = datetime(2026, 11, 21, 12, tzinfo=UTC), 1000.0

    def now(self) -> datetime:
        return self.wall

    def monotonic(self) -> float:
        return self.seconds

    def pass_(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.seconds += seconds


@dataclass
class Kept:
    """An interval, and when its work was done by the monotonic clock."""

    clock: Hands = field(default_factory=Hands)
    every: timedelta | None = timedelta(minutes=10)
    done: list[float] = field(default_factory=list)
    broken: bool = False

    async def work(self) -> None:
        if self.broken:
            raise OSError("full")
        self.done.append(self.clock.seconds)

    def interval(self, first: float = 0.0) -> Interval:
        return Interval(lambda: self.every, self.work, self.clock, self.clock.seconds + first)


async def test_the_first_comes_soon_after_the_start_the_others_as_configured() -> None:
    kept = Kept()
    interval = kept.interval(first=30)
    assert await interval.look() == kept.clock.wall + timedelta(seconds=30)
    for seconds in (30, 599, 1, 600):
        kept.clock.pass_(seconds)
        await interval.look()
    assert kept.done == [1030, 1630, 2230]
    assert await interval.look() == kept.clock.wall + timedelta(minutes=10)


@pytest.mark.parametrize("step", [DAY, -30 * DAY])
async def test_a_clock_that_is_set_neither_hastens_nor_delays_an_interval(step: timedelta) -> None:
    kept = Kept()
    interval = kept.interval()
    await interval.look()
    kept.clock.wall += step
    assert await interval.look() == kept.clock.wall + timedelta(minutes=10)
    kept.clock.pass_(600)
    await interval.look()
    assert kept.done == [1000, 1600]


async def test_an_interval_made_shorter_counts_at_once_and_it_can_be_switched_off_and_on() -> None:
    kept = Kept()
    interval = kept.interval(first=600)
    await interval.look()
    kept.every = timedelta(minutes=1)
    assert await interval.look() == kept.clock.wall + timedelta(minutes=1)
    kept.every = None
    kept.clock.pass_(3600)
    assert await interval.look() is None
    kept.every = timedelta(minutes=1)
    await interval.look()
    assert kept.done == [4600]


async def test_work_that_fails_is_still_due() -> None:
    kept = Kept(broken=True)
    interval = kept.interval()
    with pytest.raises(OSError, match="full"):
        await interval.look()
    kept.broken = False
    await interval.look()
    assert kept.done == [1000]

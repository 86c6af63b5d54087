import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from gateway.background import checkpointing as timing
from gateway.background.checkpointing import Checkpointing
from gateway.background.cpu import Cpu
from gateway.domain.errors import TryAgainLater
from gateway.domain.json import JsonObject
from gateway.store.pool import Database
from gateway.store.transcript import messages
from gateway.workspace.checkpoints import jobs
from tests.background import cpu_jobs
from tests.background.test_cpu import written
from tests.store.world import World


class Clock:
    """Time that passes only when someone waits for it; `moved` is set each time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.slept = asyncio.Queue[float]()

    def now(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC)

    def monotonic(self) -> float:
        return self.seconds

    async def sleep(self, seconds: float) -> None:
        self.slept.put_nowait(self.seconds)
        self.seconds += seconds
        await asyncio.sleep(0)

    async def until(self, seconds: float) -> None:
        """Wait until everything that is due by then has been done."""
        while await self.slept.get() < seconds:
            pass


@pytest.fixture
def checkpointing(database: Database, tmp_path: Path) -> Checkpointing:
    (tmp_path / "workspace").mkdir()
    every = timedelta(minutes=10)
    return Checkpointing(database, tmp_path / "workspace", tmp_path / "checkpoints", lambda: every, Clock())


def made(checkpointing: Checkpointing) -> list[JsonObject]:
    return jobs.listing(str(checkpointing.store), 100)


async def test_what_changed_is_kept_with_the_last_message(
    checkpointing: Checkpointing, world: World, database: Database
) -> None:
    (checkpointing.workspace / "a.md").write_text("one")
    said = await world.ask("hello")
    assert await checkpointing.make() == "last"
    assert await checkpointing.make() == "last"

    (row,) = made(checkpointing)
    assert (row["reason"], row["last_message"]) == ("timer", said)


async def test_with_the_database_away_the_files_are_kept_all_the_same(
    checkpointing: Checkpointing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: object) -> None:
        raise TryAgainLater("away")

    monkeypatch.setattr(messages, "last_id", away)
    (checkpointing.workspace / "a.md").write_text("one")
    await checkpointing.make()

    assert [row["last_message"] for row in made(checkpointing)] == [None]


async def test_a_failure_shows_and_the_next_time_it_works(checkpointing: Checkpointing) -> None:
    (checkpointing.workspace / "a.md").write_text("one")
    checkpointing.workspace.rename(checkpointing.workspace.with_name("away"))
    assert (await checkpointing.make()).startswith("failed (checkpoints: ")

    checkpointing.workspace.with_name("away").rename(checkpointing.workspace)
    await checkpointing.make()
    assert len(made(checkpointing)) == 1


async def test_a_defect_is_no_reason_to_stop(checkpointing: Checkpointing, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(messages, "last_id", broken)
    assert await checkpointing.make() == "failed (a defect)"


async def test_files_are_read_while_a_checkpoint_takes_long(
    checkpointing: Checkpointing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "commit", cpu_jobs.commit_that_hangs)
    making = asyncio.create_task(checkpointing.make())
    pid = await written(checkpointing.workspace / "mark")
    cpu = Cpu()
    assert await cpu.run(cpu_jobs.double, 21, seconds=30) == 42
    await cpu.close()

    making.cancel()
    await asyncio.wait([making])
    assert not psutil.pid_exists(pid)


class TestTimer:
    @pytest.fixture
    def clock(self, checkpointing: Checkpointing) -> Clock:
        assert isinstance(checkpointing.clock, Clock)
        return checkpointing.clock

    @pytest.fixture
    def times(self, checkpointing: Checkpointing, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        """When it made checkpoints."""
        times: list[float] = []

        async def make(self: Checkpointing) -> str:
            times.append(clock.seconds)
            return "last"

        monkeypatch.setattr(Checkpointing, "make", make)
        return times

    async def run(self, checkpointing: Checkpointing, clock: Clock, seconds: float) -> None:
        running = asyncio.create_task(checkpointing.run())
        async with asyncio.timeout(10):
            await clock.until(seconds)
        running.cancel()
        await asyncio.wait([running])

    async def test_the_first_comes_soon_after_the_start_the_others_as_configured(
        self, checkpointing: Checkpointing, clock: Clock, times: list[float]
    ) -> None:
        await self.run(checkpointing, clock, 1300)
        first = timing.FIRST_SECONDS
        assert times[:3] == [first, first + 600, first + 1200]
        assert checkpointing.state == "last at 2026-11-21 12:00:00 UTC"

    async def test_an_interval_made_shorter_counts_at_once(
        self, checkpointing: Checkpointing, clock: Clock, times: list[float]
    ) -> None:
        checkpointing.every = lambda: timedelta(minutes=10 if clock.seconds < 60 else 1)
        await self.run(checkpointing, clock, 200)
        assert times[:3] == [30, 120, 180]

    async def test_it_can_be_switched_off_and_on(
        self, checkpointing: Checkpointing, clock: Clock, times: list[float]
    ) -> None:
        checkpointing.every = lambda: None if clock.seconds < 1000 else timedelta(minutes=10)
        running = asyncio.create_task(checkpointing.run())
        async with asyncio.timeout(10):
            await clock.until(500)
            assert checkpointing.state == "off"
            await clock.until(1100)
        running.cancel()
        await asyncio.wait([running])
        assert times[0] == 1000

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest

from gateway.background.cpu.executor import Cpu
from gateway.background.upkeep.housekeeping import Checkpointing
from gateway.config.machine import SystemClock
from gateway.domain.errors import TryAgainLater
from gateway.domain.json import JsonObject
from gateway.store.connection.pool import Database
from gateway.store.transcript import messages
from gateway.workspace.checkpoints import jobs
from tests.background import cpu_jobs
from tests.background.cpu.test_executor import written
from tests.store.world import World


class Noon(SystemClock):
    def now(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def checkpointing(database: Database, tmp_path: Path) -> Checkpointing:
    (tmp_path / "workspace").mkdir()
    return Checkpointing(database, tmp_path / "workspace", tmp_path / "checkpoints", Noon())


def made(checkpointing: Checkpointing) -> list[JsonObject]:
    return jobs.listing(str(checkpointing.store), 100)


async def test_what_changed_is_kept_with_the_last_message(
    checkpointing: Checkpointing, world: World, database: Database
) -> None:
    (checkpointing.workspace / "a.md").write_text("one")
    said = await world.ask("hello")
    for _ in range(2):
        await checkpointing.run()
        assert checkpointing.state.startswith("last at ")

    (row,) = made(checkpointing)
    assert (row["reason"], row["last_message"]) == ("timer", said)


async def test_with_the_database_away_the_files_are_kept_all_the_same(
    checkpointing: Checkpointing, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(_: object) -> None:
        raise TryAgainLater("away")

    monkeypatch.setattr(messages, "last_id", away)
    (checkpointing.workspace / "a.md").write_text("one")
    await checkpointing.run()

    assert [row["last_message"] for row in made(checkpointing)] == [None]


async def test_a_failure_shows_and_the_next_time_it_works(checkpointing: Checkpointing) -> None:
    (checkpointing.workspace / "a.md").write_text("one")
    checkpointing.workspace.rename(checkpointing.workspace.with_name("away"))
    await checkpointing.run()
    assert checkpointing.state.startswith("failed (checkpoints: ")

    checkpointing.workspace.with_name("away").rename(checkpointing.workspace)
    await checkpointing.run()
    assert len(made(checkpointing)) == 1


async def test_a_defect_is_no_reason_to_stop(checkpointing: Checkpointing, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(_: object) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(messages, "last_id", broken)
    await checkpointing.run()
    assert checkpointing.state.startswith("failed (a defect) at ")


async def test_files_are_read_while_a_checkpoint_takes_long(
    checkpointing: Checkpointing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "commit", cpu_jobs.commit_that_hangs)
    making = asyncio.create_task(checkpointing.run())
    pid = await written(checkpointing.workspace / "mark")
    cpu = Cpu()
    assert await cpu.run(cpu_jobs.double, 21, seconds=30) == 42
    await cpu.close()

    making.cancel()
    await asyncio.wait([making])
    assert not psutil.pid_exists(pid)


async def test_how_the_last_one_went_is_told(checkpointing: Checkpointing) -> None:
    assert checkpointing.state == "none yet"
    await checkpointing.run()
    assert checkpointing.state == "last at 2026-11-21 12:00:00 UTC"

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.background.watch import health as health_module
from gateway.background.watch.health import GATEWAY, Health, being_the_gateway
from gateway.config.clock import SystemClock
from gateway.domain.errors import DatabaseDown, OwnerMustAct
from gateway.domain.ids import InstanceId
from gateway.store import leases
from gateway.store.pool import Database
from tests.store.world import somebody


class Noon(SystemClock):
    def now(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC)


async def reach(database: Database, holder: InstanceId) -> bool:
    async with database.connection() as conn:
        return await leases.take(conn, GATEWAY, holder, 60)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> "asyncio.Queue[bool]":
    """What each look at the lease found; once there is a next one, the one before is over."""
    found: asyncio.Queue[bool] = asyncio.Queue()
    really = leases.take

    async def take(*arguments: Any) -> bool:
        taken = await really(*arguments)
        found.put_nowait(taken)
        return taken

    monkeypatch.setattr(health_module, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(leases, "take", take)
    return found


@asynccontextmanager
async def looking(health: Health) -> AsyncIterator[None]:
    running = asyncio.create_task(health.run())
    try:
        async with asyncio.timeout(10):
            yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def until(looks: "asyncio.Queue[bool]", *, found: bool) -> None:
    """Wait for the end of a look that found this."""
    while await looks.get() is not found:
        pass
    await looks.get()


async def test_while_all_is_well_the_lease_and_the_file_are_fresh(
    database: Database, tmp_path: Path, looks: "asyncio.Queue[bool]"
) -> None:
    file, me = tmp_path / "health", somebody()
    health = Health(database, me, file, Noon())
    async with looking(health):
        await until(looks, found=True)
    assert file.read_text() == "2026-11-21T12:00:00Z\n"
    assert health.well
    assert not await reach(database, somebody())


async def test_a_lost_lease_shows(database: Database, tmp_path: Path, looks: "asyncio.Queue[bool]") -> None:
    file, other = tmp_path / "health", somebody()
    await reach(database, other)
    health = Health(database, somebody(), file, Noon())
    async with looking(health):
        await until(looks, found=False)
        assert not health.well
        assert not file.exists()
        async with database.connection() as conn:
            await leases.drop(conn, GATEWAY, other)
        await until(looks, found=True)
        assert health.well


async def test_a_database_that_is_away_shows(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: asyncio.Queue[None] = asyncio.Queue()

    async def take(*_: object) -> bool:
        looked.put_nowait(None)
        raise DatabaseDown("away")

    monkeypatch.setattr(health_module, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(leases, "take", take)
    health = Health(database, somebody(), tmp_path / "health", Noon())
    async with looking(health):
        for _ in range(2):
            await looked.get()
    assert not health.well
    assert not (tmp_path / "health").exists()


async def test_a_newer_schema_shows(database: Database, tmp_path: Path, looks: "asyncio.Queue[bool]") -> None:
    async with database.connection() as conn:
        await conn.execute("insert into migrations (number, name, sha256) values (999, 'later', '')")
    health = Health(database, somebody(), tmp_path / "health", Noon())
    async with looking(health):
        for _ in range(2):
            await looks.get()
    assert not health.well
    assert not (tmp_path / "health").exists()


async def test_a_file_that_cannot_be_written_shows(
    database: Database, tmp_path: Path, looks: "asyncio.Queue[bool]"
) -> None:
    health = Health(database, somebody(), tmp_path / "no" / "such" / "folder", Noon())
    async with looking(health):
        for _ in range(2):
            await looks.get()
    assert not health.well


async def test_one_gateway_at_a_time(database: Database) -> None:
    first, second = somebody(), somebody()
    async with being_the_gateway(database, first):
        with pytest.raises(OwnerMustAct, match="another gateway is running"):
            async with being_the_gateway(database, second):
                pytest.fail("it may not come in")
        async with being_the_gateway(database, first):
            pass
    async with being_the_gateway(database, second):
        assert not await reach(database, first)


async def test_a_gateway_that_stops_without_its_database_just_stops(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def drop(*_: object) -> None:
        raise DatabaseDown("away")

    monkeypatch.setattr(leases, "drop", drop)
    async with being_the_gateway(database, me := somebody()):
        pass
    assert not await reach(database, somebody())
    assert await reach(database, me)

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.background.upkeep import health as health_module
from gateway.background.upkeep.health import Health, alone, joined
from gateway.config.machine import SystemClock
from gateway.domain.errors import DatabaseDown, OwnerMustAct, TryAgainLater
from gateway.domain.ids import InstanceId, PrincipalId
from gateway.flow.channels.supervisor import lease_of
from gateway.flow.signals import Signals
from gateway.store.connection.pool import Database
from gateway.store.work import instances
from tests.fakes.engine import engine_on
from tests.store.world import somebody

CHANNEL = lease_of("telegram")


class Noon(SystemClock):
    def now(self) -> datetime:
        return datetime(2026, 11, 21, 12, tzinfo=UTC)


async def reach(database: Database, holder: InstanceId) -> bool:
    async with database.connection() as conn:
        return await instances.take_lease(conn, CHANNEL, holder, 60)


@dataclass
class Watched:
    """One gateway's health, and what it looks at."""

    database: Database
    file: Path
    me: InstanceId = field(default_factory=somebody)
    stuck: dict[str, str] = field(default_factory=dict)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    signals: Signals = field(default_factory=Signals)

    def __post_init__(self) -> None:
        self.health = Health(*self.parts)

    @property
    def parts(self) -> tuple[Any, ...]:
        engine = engine_on(self.database, instance=self.me, clock=Noon(), signals=self.signals)
        return engine, self.file, lambda: self.stuck, self.stop, [CHANNEL]


@pytest.fixture
def watched(database: Database, tmp_path: Path) -> Watched:
    return Watched(database, tmp_path / "health")


async def test_while_all_is_well_the_lease_and_the_file_are_fresh(watched: Watched) -> None:
    await watched.health.look()
    assert watched.file.read_text() == "2026-11-21T12:00:00Z\n"
    assert watched.health.healthy
    assert not await reach(watched.database, somebody())


async def test_a_lease_that_another_gateway_holds_is_a_reason_to_stop(watched: Watched) -> None:
    await reach(watched.database, somebody())
    await watched.health.look()
    assert (watched.health.healthy, watched.health.lost, watched.stop.is_set()) == (False, True, True)
    assert not watched.file.exists()


async def test_one_that_nobody_took_meanwhile_is_taken_again(watched: Watched) -> None:
    await watched.health.look()
    async with watched.database.connection() as conn:
        await conn.execute("update leases set expires_at = now() - interval '1 hour'")
    await watched.health.look()
    assert (watched.health.healthy, watched.stop.is_set()) == (True, False)
    assert not await reach(watched.database, somebody())


async def test_a_database_that_is_away_shows_and_is_no_reason_to_stop(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def take_all(*_: object) -> set[str]:
        raise DatabaseDown("away")

    with monkeypatch.context() as outage:
        outage.setattr(instances, "take_leases", take_all)
        await watched.health.look()
    assert (watched.health.healthy, watched.health.lost, watched.stop.is_set()) == (False, False, False)
    assert watched.health.database_problem == "away"
    assert not watched.file.exists()
    await watched.health.look()
    assert (watched.health.healthy, watched.health.database_problem) == (True, "")


async def test_a_newer_schema_shows_if_this_program_cannot_work_on_it(watched: Watched) -> None:
    async with watched.database.connection() as conn:
        await conn.execute("insert into migrations (number, name, sha256) values (999, 'later', '')")
    await watched.health.look()
    assert (watched.health.healthy, watched.file.exists()) == (True, True)
    async with watched.database.connection() as conn:
        await conn.execute("update migrations set compatible_from = 999 where number = 999")
    watched.file.unlink()
    await watched.health.look()
    assert (watched.health.healthy, watched.stop.is_set(), watched.file.exists()) == (False, False, False)


async def test_a_channel_that_cannot_even_try_to_work_shows_until_it_can(watched: Watched) -> None:
    watched.stuck["telegram"] = "its task has ended"
    with capture_logs() as logs:
        await watched.health.look()
    assert not watched.health.healthy
    assert not watched.file.exists()
    assert [(log["event"], log["channel"], log["problem"]) for log in logs] == [
        ("health.channel", "telegram", "its task has ended")
    ]
    watched.stuck.clear()
    await watched.health.look()
    assert watched.health.healthy
    assert watched.file.exists()


async def test_a_file_that_cannot_be_written_shows(database: Database, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    watched = Watched(database, tmp_path / "file" / "health")
    await watched.health.look()
    assert not watched.health.healthy


class TestFreezes:
    """Whoever slept past the lease asks before anything else."""

    @pytest.fixture(autouse=True)
    def clock(self, monkeypatch: pytest.MonkeyPatch) -> list[float]:
        now = [1000.0]
        monkeypatch.setattr(health_module, "boot_seconds", lambda: now[0])
        return now

    @pytest.fixture
    async def left(self, clock: list[float], watched: Watched) -> list[bool]:
        """Whether it left, once it did."""
        left: list[bool] = []
        watched.health = Health(*watched.parts)
        watched.signals.lost.subscribe_call(lambda: left.append(True))
        await watched.health.look()
        watched.health.check_after_freeze()
        return left

    async def expire(self, watched: Watched) -> None:
        async with watched.database.connection() as conn:
            await conn.execute("update leases set expires_at = now() - interval '1 hour'")

    async def test_one_that_wakes_beside_its_successor_leaves_before_anything_else_can_run(
        self, watched: Watched, left: list[bool], clock: list[float]
    ) -> None:
        await self.expire(watched)
        await reach(watched.database, somebody())
        clock[0] += 45
        watched.health.check_after_freeze()
        assert (watched.health.lost, watched.stop.is_set(), left) == (True, True, [True])

    async def test_one_whose_lease_nobody_took_goes_on_with_it(
        self, watched: Watched, left: list[bool], clock: list[float]
    ) -> None:
        await self.expire(watched)
        clock[0] += 45
        watched.health.check_after_freeze()
        assert (watched.health.lost, left) == (False, [])
        assert not await reach(watched.database, somebody())

    async def test_a_statement_is_what_can_wake_it(
        self, watched: Watched, left: list[bool], clock: list[float]
    ) -> None:
        watched.database.before = watched.health.check_after_freeze
        await self.expire(watched)
        await reach(watched.database, somebody())
        clock[0] += 45
        async with watched.database.bound(PrincipalId(somebody())).connection():
            assert left == [True]

    async def test_a_short_freeze_and_a_long_outage_ask_nobody(
        self, watched: Watched, left: list[bool], clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def apart(_: Database) -> Database:
            pytest.fail("nothing is to be asked")

        monkeypatch.setattr(Database, "apart", apart)
        clock[0] += 7
        watched.health.check_after_freeze()
        for _ in range(30):
            clock[0] += 1
            watched.health.check_after_freeze()
        assert left == []

    async def test_one_that_cannot_ask_goes_on_and_leaves_as_soon_as_it_knows(
        self, watched: Watched, left: list[bool], clock: list[float], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        really, away = Database.apart, [DatabaseDown("away")] * 2

        async def apart(database: Database) -> Database:
            if away:
                clock[0] += 10  # as long as it is waited for
                raise away.pop()
            return await really(database)

        monkeypatch.setattr(Database, "apart", apart)
        await self.expire(watched)
        await reach(watched.database, somebody())
        clock[0] += 45
        watched.health.check_after_freeze()
        watched.health.check_after_freeze()
        assert (len(away), left) == (1, [])
        await watched.health.look()
        assert (left, watched.health.lost) == ([True], True)


async def test_whoever_wants_to_be_alone_is_and_others_wait(database: Database) -> None:
    first, second = somebody(), somebody()
    async with alone(database, first):
        with pytest.raises(OwnerMustAct, match="another gateway is running"):
            async with alone(database, second):
                pytest.fail("it may not come in")
        with pytest.raises(TryAgainLater, match="being upgraded"):
            async with joined(database, second, "worker"):
                pytest.fail("it may not come in")
        async with joined(database, first, "gateway"):
            pass
    async with joined(database, second, "worker"):
        with pytest.raises(OwnerMustAct, match="stop it"):
            async with alone(database, first):
                pytest.fail("it may not come in")
        async with joined(database, first, "gateway"), database.connection() as conn:
            assert {(each.id, each.kind, each.state) for each in await instances.every(conn)} == {
                (first, "gateway", "running"),
                (second, "worker", "running"),
            }
    async with database.connection() as conn:
        assert await instances.every(conn) == []


async def test_a_gateway_that_stops_without_its_database_just_stops(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def drop(*_: object) -> None:
        raise DatabaseDown("away")

    monkeypatch.setattr(instances, "drop_lease", drop)
    async with joined(database, me := somebody(), "gateway"):
        pass
    async with database.connection() as conn:
        assert not await instances.take_lease(conn, instances.life_lease(me), somebody(), 60)

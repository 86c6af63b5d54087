import asyncio
import fcntl
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.app.checks.database import check_database, judge
from gateway.store.connection.pool import Connection, Database
from gateway.store.connection.server import ServerFacts
from gateway.store.embedded.cluster import opened
from gateway.store.migrate import read_migrations
from tests.app.checks.contexts import Examine, told
from tests.conftest import Server as RealServer

KNOWN = {migration.number: migration.sha256 for migration in read_migrations()}
WELL = ServerFacts("18.4", False, len(KNOWN), 0.4, 0.0)


def inside(dsn: str, work: Callable[[Connection], Awaitable[object]]) -> object:
    async def worked() -> object:
        async with await Database.connect(dsn, size=1) as database, database.connection() as connection:
            return await work(connection)

    return asyncio.run(worked())


def test_a_database_that_fits_is_fine() -> None:
    assert [finding.level for finding in judge(WELL)] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("change", "level", "word"),
    [
        ({"read_only": True}, "fail", "read-only"),
        ({"round_trip_ms": 120.0}, "warn", "120.0 ms"),
        ({"migrations": 1}, "warn", f"1 of {len(KNOWN)} applied"),
        ({"ahead_seconds": 90.0}, "warn", "by 90 s"),
        ({"ahead_seconds": -90.0}, "warn", "by -90 s"),
    ],
)
def test_what_does_not_fit_is_told(change: dict[str, object], level: str, word: str) -> None:
    (finding,) = [finding for finding in judge(replace(WELL, **change)) if finding.fix]

    assert finding.level == level
    assert word in finding.text


def test_an_embedded_server_that_does_not_run_is_not_started(examine: Examine) -> None:
    assert told(examine(check_database)) == [("ok", "the embedded Postgres is not running; `supaclaw up` starts it")]


def test_a_lost_password_is_told_and_no_new_one_is_made(examine: Examine, tmp_path: Path) -> None:
    (tmp_path / "data" / "postgres").mkdir(parents=True)
    with opened(tmp_path / "data" / "postgres") as alive:
        fcntl.flock(alive, fcntl.LOCK_EX)
        (finding,) = examine(check_database)

    assert (finding.level, "postgres.supaclaw is gone" in finding.text) == ("fail", True)
    assert not (tmp_path / "data" / "keys").exists()


def test_a_real_database_that_fits_is_found_so(examine: Examine, dsn: str, server: RealServer) -> None:
    url = f"{dsn}&member_password={server.member_password}"
    findings = told(examine(check_database, SUPACLAW_DATABASE_URL=url))

    assert [level for level, _ in findings] == ["ok", "ok", "ok", "ok"]
    assert findings[0][1].startswith("PostgreSQL 18")
    assert findings[1][1] == f"migrations: {len(KNOWN)} of {len(KNOWN)} applied"
    assert findings[-1][1].startswith("largest tables: ")


def test_members_without_a_login_of_their_own_are_told(examine: Examine, dsn: str) -> None:
    findings = examine(check_database, SUPACLAW_DATABASE_URL=f"{dsn}&member_password=not-it")

    [finding] = [each for each in findings if each.level == "warn"]
    assert finding.text.startswith("members' tools cannot log in as supaclaw_member")
    assert "alter role supaclaw_member login" in finding.fix


def test_an_empty_database_is_only_looked_at(examine: Examine, empty_dsn: str) -> None:
    findings = told(examine(check_database, SUPACLAW_DATABASE_URL=empty_dsn))

    assert findings[1] == ("warn", f"migrations: 0 of {len(KNOWN)} applied")
    made = inside(empty_dsn, lambda conn: conn.fetchval("select to_regnamespace('supaclaw')::text"))
    assert made is None


def test_pending_migrations_are_not_applied(examine: Examine, dsn: str) -> None:
    newest = max(KNOWN)
    inside(dsn, lambda conn: conn.execute("delete from migrations where number = $1", newest))

    findings = told(examine(check_database, SUPACLAW_DATABASE_URL=dsn))

    assert findings[1] == ("warn", f"migrations: {newest - 1} of {newest} applied")
    assert inside(dsn, lambda conn: conn.fetchval("select max(number) from migrations")) == newest - 1


def test_a_newer_database_asks_for_an_update(examine: Examine, dsn: str) -> None:
    newer = "insert into migrations (number, name, sha256, compatible_from) values (99, 'x', 'x', 99)"
    inside(dsn, lambda conn: conn.execute(newer))

    (finding,) = examine(check_database, SUPACLAW_DATABASE_URL=dsn)

    assert finding.text.startswith("A newer SupaClaw wrote this database (schema 99, ")
    assert (finding.level, finding.fix) == ("fail", "update SupaClaw")


def test_a_newer_database_that_this_version_can_work_on_is_no_trouble(examine: Examine, dsn: str) -> None:
    inside(dsn, lambda conn: conn.execute("insert into migrations (number, name, sha256) values (99, 'x', 'x')"))

    assert told(examine(check_database, SUPACLAW_DATABASE_URL=dsn))[1] == (
        "ok",
        f"migrations: {len(KNOWN)} of {len(KNOWN)} applied, and 1 of a newer SupaClaw, on which this one works",
    )


@pytest.mark.parametrize("url", ["postgresql://me:hush@127.0.0.1:1/none", "mysql://me:hush@h/x"])
def test_a_database_that_does_not_answer_fails_and_hides_the_password(examine: Examine, url: str) -> None:
    (finding,) = examine(check_database, SUPACLAW_DATABASE_URL=url)

    assert (finding.level, finding.fix) == ("fail", "check database.url, and that this server runs")
    assert "hush" not in finding.text


def test_a_supabase_project_that_fills_up_is_told_before_it_is_read_only() -> None:
    full = replace(WELL, supabase_bytes=401_000_000)
    about = "Supabase has 401 MB; a free project becomes read-only at 500 MB"

    assert about in [finding.text for finding in judge(full)]
    assert about not in [finding.text for finding in judge(replace(WELL, supabase_bytes=399_000_000))]

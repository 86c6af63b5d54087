"""An older schema that is in use, and a newer program that starts on it."""

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from gateway.app.storage import upgrade as upgrade_module
from gateway.app.storage.restore import unpack
from gateway.app.storage.upgrade import BACKUPS, join_upgraded
from gateway.config.environment import Environment
from gateway.config.load import parse
from gateway.config.model import Config
from gateway.domain.errors import DiskFull, OwnerMustAct
from gateway.domain.ids import InstanceId
from gateway.store import migrate as migrate_module
from gateway.store.connection.pool import Database
from gateway.store.migrate import MIGRATIONS, migrate, read_migrations, schema_of
from gateway.store.work.instances import life_lease
from tests.journeys.process import until

NEWEST = len(read_migrations())
OLD = NEWEST - 1
ME, SOMEBODY = InstanceId(uuid4()), InstanceId(uuid4())


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    data = tmp_path / "data"
    for name, text in (("workspace/AGENTS.md", "Be kind."), ("keys/journal", "a key")):
        path = data / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return Environment(config=tmp_path / "config.json", data=data, workspace=data / "workspace")


@pytest.fixture
def config(empty_dsn: str) -> Config:
    return parse(json.dumps({"database": {"url": empty_dsn}}), {})


@pytest.fixture
async def old(empty_dsn: str) -> AsyncIterator[Database]:
    """A database that the program before was at work on."""
    async with await Database.connect(empty_dsn) as database:
        await migrate(database, upto=OLD)
        await do(database, "insert into principals (id, role, name) values (gen_random_uuid(), 'owner', 'Ada')")
        yield database


async def do(database: Database, statement: str, *arguments: object) -> None:
    async with database.transaction() as tx:
        await tx.execute(statement, *arguments)


async def start(environment: Environment, config: Config, database: Database) -> None:
    async with join_upgraded(environment, config, database, ME):
        pass


async def number(database: Database) -> int:
    return (await schema_of(database)).number


def backups(environment: Environment) -> list[str]:
    return sorted(path.name for path in (environment.data / BACKUPS).glob("*"))


async def test_what_was_there_is_saved_with_its_keys_before_anything_changes(
    environment: Environment, config: Config, old: Database
) -> None:
    with capture_logs() as logs:
        await start(environment, config, old)

    assert await number(old) == NEWEST
    [name] = backups(environment)
    assert {"event": "upgrade.backup", "file": str(environment.data / BACKUPS / name), "log_level": "info"} in logs
    saved = unpack(environment.data / BACKUPS / name, None)
    assert saved.schema_number == OLD
    assert {"keys/journal", "workspace/AGENTS.md"} <= {member.name for member in saved.members}


async def test_a_fresh_database_needs_no_backup(environment: Environment, config: Config, empty_dsn: str) -> None:
    async with await Database.connect(empty_dsn) as fresh:
        await start(environment, config, fresh)

        assert await number(fresh) == NEWEST
    assert backups(environment) == []


async def test_a_first_start_that_broke_off_needs_none_either(
    environment: Environment, config: Config, old: Database
) -> None:
    await do(old, "delete from principals")

    await start(environment, config, old)

    assert (await number(old), backups(environment)) == (NEWEST, [])


async def test_nothing_is_done_without_room_for_the_backup(
    environment: Environment, config: Config, old: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade_module.shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))

    with pytest.RaisesGroup(
        pytest.RaisesExc(DiskFull, match=r"takes up to \d+ MB in .*/backups, where 0 MB are free: make room")
    ):
        await start(environment, config, old)

    assert (await number(old), backups(environment)) == (OLD, [])


async def test_two_backups_are_kept(environment: Environment, config: Config, old: Database) -> None:
    folder = environment.data / BACKUPS
    folder.mkdir()
    for age, name in enumerate(("upgrade-3-to-4.tar.gz", "upgrade-2-to-3.tar.gz", "mine.tar.gz")):
        (folder / name).touch()
        os.utime(folder / name, (1000 - age, 1000 - age))

    await start(environment, config, old)

    assert set(backups(environment)) == {"mine.tar.gz", "upgrade-3-to-4.tar.gz", f"upgrade-{OLD}-to-{NEWEST}.tar.gz"}


async def test_an_upgrade_that_broke_off_keeps_the_backup_of_its_beginning(
    environment: Environment, config: Config, old: Database
) -> None:
    folder = environment.data / BACKUPS
    folder.mkdir()
    (folder / f"upgrade-{OLD - 1}-to-{NEWEST}.tar.gz").write_text("of before its first migration")

    await start(environment, config, old)

    assert (await number(old), backups(environment)) == (NEWEST, [f"upgrade-{OLD - 1}-to-{NEWEST}.tar.gz"])


async def test_an_upgrade_after_going_back_has_a_backup_of_its_own(
    environment: Environment, config: Config, old: Database
) -> None:
    folder = environment.data / BACKUPS
    folder.mkdir()
    for age, name in enumerate((f"upgrade-{OLD - 1}-to-{OLD}.tar.gz", f"upgrade-{OLD - 1}-to-{NEWEST}.tar.gz")):
        (folder / name).touch()
        os.utime(folder / name, (1000 - age, 1000 - age))

    await start(environment, config, old)

    assert backups(environment) == [f"upgrade-{OLD - 1}-to-{OLD}.tar.gz", f"upgrade-{OLD}-to-{NEWEST}.tar.gz"]


async def test_no_schema_changes_beneath_a_living_gateway(
    environment: Environment, config: Config, old: Database
) -> None:
    await do(old, "insert into leases values ('gateway', $1, now() + interval '30 seconds')", SOMEBODY)

    with pytest.raises(OwnerMustAct, match="another gateway is running"):
        await start(environment, config, old)

    assert (await number(old), backups(environment)) == (OLD, [])


async def test_no_schema_changes_beneath_a_worker(environment: Environment, config: Config, old: Database) -> None:
    await do(
        old,
        """insert into tasks (id, master_id, kind, lane, principal_id, status, worker, lease_until)
           select gen_random_uuid(), gen_random_uuid(), 'agent', 'agents', id, 'running', $1, now() + interval '30 s'
           from principals""",
        SOMEBODY,
    )

    with pytest.raises(OwnerMustAct, match="or a worker runs on this database"):
        await start(environment, config, old)

    assert (await number(old), backups(environment)) == (OLD, [])


@pytest.mark.parametrize(("knows", "beside"), [(NEWEST, True), (NEWEST - 1, False), (0, False)])
async def test_what_only_adds_is_done_beside_programs_that_can_work_after_it(
    environment: Environment, config: Config, old: Database, monkeypatch: pytest.MonkeyPatch, knows: int, beside: bool
) -> None:
    later = environment.data / "migrations"
    shutil.copytree(MIGRATIONS, later)
    (later / f"{NEWEST + 1:04}_later.sql").write_text(f"-- compatible_from: {NEWEST}\ncreate table later (id int);")
    await migrate(old)
    await do(old, "insert into leases values ($1, $2, now() + interval '30 s')", life_lease(SOMEBODY), SOMEBODY)
    await do(old, "insert into instances (id, name, kind, schema) values ($1, 'x', 'gateway', $2)", SOMEBODY, knows)
    reads = partial(read_migrations, later)
    monkeypatch.setattr(migrate_module, "read_migrations", lambda *_: reads())

    with nullcontext() if beside else pytest.raises(OwnerMustAct, match="or a worker runs on this database"):
        await start(environment, config, old)

    assert await number(old) == NEWEST + beside
    assert backups(environment) == [f"upgrade-{NEWEST}-to-{NEWEST + 1}.tar.gz"] * beside


async def test_what_takes_long_is_told_and_keeps_the_lease(
    environment: Environment, config: Config, old: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade_module, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(upgrade_module, "RENEW_SECONDS", 0.01)

    async def slow(*_: object, **__: object) -> None:
        await do(old, "update leases set expires_at = now()")
        await until(lambda: is_renewed(old))

    monkeypatch.setattr(upgrade_module, "back_up", slow)
    with capture_logs() as logs:
        await start(environment, config, old)

    assert {"event": "upgrade.goes_on", "log_level": "info"} in logs


async def is_renewed(database: Database) -> bool:
    async with database.connection() as conn:
        return bool(await conn.fetchval("select expires_at > now() + interval '20 s' from leases"))


async def test_who_loses_the_lease_changes_nothing_more(
    environment: Environment, config: Config, old: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upgrade_module, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(upgrade_module, "RENEW_SECONDS", 0.01)

    async def frozen(*_: object, **__: object) -> None:
        await do(old, "update leases set holder = $1, expires_at = now() + interval '30 s'", SOMEBODY)
        await asyncio.Event().wait()

    monkeypatch.setattr(upgrade_module, "back_up", frozen)
    with pytest.RaisesGroup(pytest.RaisesExc(OwnerMustAct, match="another gateway took this database over")):
        await asyncio.wait_for(start(environment, config, old), 30)

    assert await number(old) == OLD

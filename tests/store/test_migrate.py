import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.store import migrate as migrate_module
from gateway.store.migrate import MIGRATIONS, check_server, migrate, read_migrations
from gateway.store.pool import Database
from tests.conftest import Server


@pytest.fixture
async def empty(empty_dsn: str) -> AsyncIterator[Database]:
    async with await Database.connect(empty_dsn) as database:
        yield database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "0001_first.sql").write_text("create table first (id int); insert into first values (1);")
    (tmp_path / "0002_second.sql").write_text("create table second (id int);")
    return tmp_path


async def column(database: Database, question: str) -> list[object]:
    async with database.connection() as connection:
        return [row[0] for row in await connection.fetch(question)]


async def test_missing_migrations_are_applied_in_order_and_entered(empty: Database, folder: Path) -> None:
    await migrate(empty, folder)
    assert await column(empty, "select name from supaclaw.migrations order by number") == [
        "0001_first.sql",
        "0002_second.sql",
    ]
    assert await column(empty, "select id from supaclaw.first") == [1]


async def test_what_is_applied_is_not_applied_again(empty: Database, folder: Path) -> None:
    await migrate(empty, folder)
    await migrate(empty, folder)
    (folder / "0003_third.sql").write_text("insert into first values (3);")
    await migrate(empty, folder)
    assert await column(empty, "select id from first order by id") == [1, 3]


async def test_programs_that_start_together_apply_each_migration_once(empty: Database, folder: Path) -> None:
    await asyncio.gather(*(migrate(empty, folder) for _ in range(4)))
    assert await column(empty, "select id from first") == [1]


async def test_a_migration_that_fails_leaves_nothing_of_itself(empty: Database, folder: Path) -> None:
    (folder / "0003_bad.sql").write_text("create table third (id int); select no_such_thing();")
    with pytest.raises(asyncpg.UndefinedFunctionError):
        await migrate(empty, folder)
    assert await column(empty, "select to_regclass('third')") == [None]
    assert await column(empty, "select max(number) from migrations") == [2]


async def test_it_works_through_a_transaction_pooler(empty_dsn: str, folder: Path) -> None:
    async with await Database.connect(f"{empty_dsn}&pool_mode=transaction") as pooled:
        await migrate(pooled, folder)
        assert await column(pooled, "select id from first") == [1]


async def test_a_newer_database_is_left_alone(empty: Database, folder: Path) -> None:
    await migrate(empty, folder)
    (folder / "0002_second.sql").unlink()
    with pytest.raises(OwnerMustAct, match="update SupaClaw"):
        await migrate(empty, folder)


async def test_a_changed_migration_is_refused(empty: Database, folder: Path) -> None:
    await migrate(empty, folder)
    (folder / "0001_first.sql").write_text("create table first (id bigint);")
    with pytest.raises(OwnerMustAct, match=r"0001_first\.sql is not the migration"):
        await migrate(empty, folder)


async def test_a_role_that_may_not_create_is_told_so(
    empty: Database, empty_dsn: str, folder: Path, server: Server
) -> None:
    await server.maintain(f"alter database {empty_dsn.split('@/')[1].split('?')[0]} owner to postgres")
    with pytest.raises(OwnerMustAct, match="may not set up the schema"):
        await migrate(empty, folder)


async def test_a_schema_of_another_role_is_named(empty: Database, empty_dsn: str, folder: Path, server: Server) -> None:
    name = empty_dsn.split("@/")[1].split("?")[0]
    connection = await asyncpg.connect(server.maintenance_dsn.replace("/postgres?", f"/{name}?"))
    await connection.execute("create schema supaclaw; create table supaclaw.migrations ()")
    await connection.close()
    with pytest.raises(OwnerMustAct, match="belongs to another role"):
        await migrate(empty, folder)


async def test_a_server_that_is_too_old_is_refused(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate_module, "_OLDEST_SERVER", 99)
    with pytest.raises(OwnerMustAct, match="needs 99 or newer"):
        await check_server(empty)


async def test_a_server_without_vectors_is_refused(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate_module, "_EXTENSION", "no_such_extension")
    with pytest.raises(OwnerMustAct, match="no pgvector"):
        await check_server(empty)


def test_gaps_and_doubles_in_the_numbers_are_our_bug(folder: Path) -> None:
    (folder / "0002_again.sql").write_text("")
    with pytest.raises(ValueError, match="without gaps"):
        read_migrations(folder)


async def test_our_own_migrations_leave_no_table_open_to_others(database: Database) -> None:
    assert len(read_migrations(MIGRATIONS)) >= 1
    unguarded = """select relname from pg_class
                   where relnamespace = 'supaclaw'::regnamespace and relkind = 'r' and not relrowsecurity"""
    assert await column(database, unguarded) == []

import asyncio
import re
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg
import pytest

from gateway.domain.errors import DatabaseDown, OwnerMustAct
from gateway.store import migrate as migrate_module
from gateway.store.connection.pool import Database
from gateway.store.migrate import MIGRATIONS, check_server, migrate, read_migrations, schema_of
from tests.conftest import Server
from tests.journeys.process import until

FIRST_ROLLING = 51
"""The schema from which on programs of two versions work on one."""


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
    with pytest.raises(OwnerMustAct, match=r"schema cannot be set up.*no_such_thing"):
        await migrate(empty, folder)
    assert await column(empty, "select to_regclass('third')") == [None]
    assert await column(empty, "select max(number) from migrations") == [2]


PROGRAM = """
import asyncio, sys
from pathlib import Path
from gateway.store.migrate import migrate
from gateway.store.connection.pool import Database

async def main():
    async with await Database.connect(sys.argv[1]) as database:
        print("connected", flush=True)
        await migrate(database, Path(sys.argv[2]))

asyncio.run(main())
"""


@asynccontextmanager
async def migrating(dsn: str, folder: Path) -> AsyncIterator[Process]:
    """Another program that migrates; it is connected, and it is gone at the end."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, dsn, str(folder), stdout=PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"connected\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_program_killed_in_the_middle_leaves_the_number_before_and_the_next_one_finishes(
    empty: Database, empty_dsn: str, folder: Path
) -> None:
    second = folder / "0002_second.sql"
    second.write_text("create table second (id int); insert into second values (7); select pg_sleep(60);")
    sleeping = "select true from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'"

    async def is_in_the_middle() -> bool:
        return await column(empty, sleeping) == [True]

    async def is_over() -> bool:
        return await column(empty, sleeping) == []

    async with migrating(empty_dsn, folder) as process:
        await until(is_in_the_middle)
        process.kill()
    # A server notices a dead client when it next speaks to it; until then the lock is held, as it must be.
    await column(empty, f"select pg_terminate_backend(pid) from ({sleeping.replace('true', 'pid')}) a")
    await until(is_over)

    assert await column(empty, "select number from supaclaw.migrations") == [1]
    assert await column(empty, "select to_regclass('supaclaw.second')") == [None]
    second.write_text("create table second (id int); insert into second values (7);")
    await migrate(empty, folder)
    assert await column(empty, "select id from second") == [7]
    assert await column(empty, "select id from first") == [1]


async def test_two_processes_at_once_apply_each_migration_once(empty: Database, empty_dsn: str, folder: Path) -> None:
    (folder / "0002_second.sql").write_text("create table second (id int); insert into second values (2);")
    async with migrating(empty_dsn, folder) as one, migrating(empty_dsn, folder) as other:
        assert await asyncio.gather(one.wait(), other.wait()) == [0, 0]

    assert await column(empty, "select id from first") == [1]
    assert await column(empty, "select id from second") == [2]
    assert await column(empty, "select number from migrations order by number") == [1, 2]


async def test_it_can_stop_before_the_newest(empty: Database, folder: Path) -> None:
    await migrate(empty, folder, upto=0)
    assert await column(empty, "select to_regclass('supaclaw.first')") == [None]
    await migrate(empty, folder, upto=1)
    await migrate(empty, folder, upto=1)
    assert await column(empty, "select number from supaclaw.migrations") == [1]
    await migrate(empty, folder, upto=9)
    assert await column(empty, "select number from migrations order by number") == [1, 2]


async def test_rows_of_an_older_schema_are_all_there_after_the_upgrade(empty: Database) -> None:
    await migrate(empty, upto=2)
    principal, session, task = uuid4(), uuid4(), uuid4()
    async with empty.transaction() as tx:
        await tx.execute("insert into principals (id, role, name) values ($1, 'owner', 'Ada')", principal)
        await tx.execute("insert into sessions (id, principal_id, next_seq) values ($1, $2, 3)", session, principal)
        await tx.execute(
            """insert into addresses (principal_id, channel, account, chat, private, session_id)
               values ($1, 'telegram', 'bot', '77', true, $2)""",
            principal,
            session,
        )
        await tx.execute(
            """insert into tasks (id, master_id, kind, lane, principal_id, session_id)
               values ($1, $1, 'chat', 'chat', $2, $3)""",
            task,
            principal,
            session,
        )
        for place, (kind, text) in enumerate([("user", "Tea?"), ("assistant", "Green."), ("user", "Why?")], start=1):
            await tx.execute(
                """insert into messages (session_id, principal_id, address_id, seq, kind, text, label, origin, task_id)
                   values ($1, $2, (select id from addresses), nullif($3::int, 3), $4, $5, 0, 'telegram', $6)""",
                session,
                principal,
                place,
                kind,
                text,
                task,
            )
        await tx.execute(
            """insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, platform_time,
                 message_id)
               select principal_id, address_id, 'telegram', 'bot', '77', id::text, 'message', now(), id
               from messages where kind = 'user'"""
        )
        await tx.execute(
            """insert into outbox (principal_id, address_id, message_id, text, state)
               select principal_id, address_id, id, text, 'sent' from messages where kind = 'assistant'"""
        )
    old = {
        table: await column(empty, f"select to_jsonb(t) from {table} t order by to_jsonb(t)::text")
        for table in ("principals", "sessions", "addresses", "tasks", "messages", "inbox", "outbox")
    }

    await migrate(empty)

    for table, rows in old.items():
        now = await column(empty, f"select to_jsonb(t) from {table} t order by to_jsonb(t)::text")
        assert len(now) == len(rows)
        for row in rows:
            assert isinstance(row, dict)
            assert any(isinstance(new, dict) and row.items() <= new.items() for new in now), (table, row)


async def test_it_works_through_a_transaction_pooler(empty_dsn: str, folder: Path) -> None:
    async with await Database.connect(f"{empty_dsn}&pool_mode=transaction") as pooled:
        await migrate(pooled, folder)
        assert await column(pooled, "select id from first") == [1]


async def test_a_newer_database_is_left_alone(empty: Database, folder: Path) -> None:
    with (folder / "0002_second.sql").open("a") as second:
        second.write("\n-- compatible_from: 2\n")
    await migrate(empty, folder)
    (folder / "0002_second.sql").unlink()
    with pytest.raises(OwnerMustAct, match=r"schema 2, for programs that know 2; this one knows 1\): update SupaClaw"):
        await migrate(empty, folder)


async def test_a_newer_database_that_says_so_takes_an_older_program(empty: Database, folder: Path) -> None:
    await migrate(empty, folder)
    (folder / "0002_second.sql").unlink()
    await migrate(empty, folder)
    schema = await schema_of(empty, folder)
    assert (schema.number, schema.missing) == (2, ())


BREAKING = r"""(?ix) \b drop \s+ (?!not \s+ null) | \b rename \b | \b set \s+ not \s+ null \b
  | \b alter \s+ column \s+ \w+ \s+ (set \s+ data \s+ )? type \b | \b revoke \b (?! [^;]* \b from \s+ public\b)
  | \b alter \s+ table [^;]* \b add \s+ (constraint|check|foreign|primary|unique|exclude) \b
  | \b add \s+ column [^,;]* \b not \s+ null (?! [^,;]* \b default \b)
  | \b add \s+ column \s+ (if \s+ not \s+ exists \s+)? \w*label \b (?! [^,;]* \b default \s+ 2 \b)
  | \b create \s+ unique"""
"""Changes after which an older program fails, or writes rows with too much trust."""


@pytest.mark.parametrize(
    ("sql", "breaks"),
    [
        ("alter table tasks add column mood text", False),
        ("alter table tasks add column mood text not null default ''", False),
        ("alter table tasks add column label smallint not null default 2", False),
        ("create table moods (label smallint not null, unique (label))", False),
        ("create or replace function claim(a int) returns int language sql as $$ select 1 $$", False),
        ("alter table tasks alter column mood drop not null", False),
        ("alter table tasks add column mood text not null", True),
        ("alter table tasks add column label smallint not null default 0", True),
        ("alter table tasks add column if not exists label smallint", True),
        ("alter table tasks drop column mood", True),
        ("drop function claim(int)", True),
        ("alter table tasks rename to jobs", True),
        ("alter table tasks alter column kind type int", True),
        ("alter table tasks alter column kind set not null", True),
        ("alter table tasks add constraint kinds check (kind <> '')", True),
        ("create unique index on tasks (kind)", True),
    ],
)
def test_what_an_older_program_cannot_work_after_is_known(sql: str, breaks: bool) -> None:
    assert bool(re.search(BREAKING, sql)) is breaks


def test_a_migration_only_adds_or_says_which_programs_can_work_after_it() -> None:
    for migration in read_migrations()[FIRST_ROLLING - 1 :]:
        sql = re.sub(r"--.*", "", migration.sql)
        breaks = re.search(BREAKING, sql)
        assert migration.compatible_from or not breaks, f"{migration.name}: {breaks} needs `-- compatible_from: NUMBER`"
        assert migration.compatible_from <= migration.number


async def test_a_changed_migration_is_refused(empty: Database, folder: Path) -> None:
    await migrate(empty, folder)
    (folder / "0001_first.sql").write_text("create table first (id bigint);")
    with pytest.raises(OwnerMustAct, match=r"0001_first\.sql is not the migration"):
        await migrate(empty, folder)


async def test_a_role_that_may_not_create_is_told_so(
    empty: Database, empty_dsn: str, folder: Path, server: Server
) -> None:
    await server.maintain(f"alter database {empty_dsn.split('@/')[1].split('?')[0]} owner to postgres")
    with pytest.raises(OwnerMustAct, match=r"schema cannot be set up.*connect as its owner"):
        await migrate(empty, folder)


async def test_a_schema_of_another_role_is_named(empty: Database, empty_dsn: str, folder: Path, server: Server) -> None:
    name = empty_dsn.split("@/")[1].split("?")[0]
    connection = await asyncpg.connect(server.maintenance_dsn.replace("/postgres?", f"/{name}?"))
    await connection.execute("create schema supaclaw; create table supaclaw.migrations ()")
    await connection.close()
    with pytest.raises(DatabaseDown, match=r"permission denied for schema supaclaw; check database.url"):
        await migrate(empty, folder)


async def test_a_server_that_is_too_old_is_refused(empty: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrate_module, "_OLDEST_SERVER", 99)
    with pytest.raises(OwnerMustAct, match="needs 99 or newer"):
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

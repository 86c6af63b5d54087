import asyncio
import os
from uuid import uuid4

import pytest

from gateway.domain.errors import DatabaseDown, OwnerMustAct, RunLost, TryAgainLater
from gateway.domain.ids import PrincipalId
from gateway.store.connection import pool as pool_module
from gateway.store.connection.pool import Connection, Database, take_long
from tests.conftest import Server

RAISE = "do $$ begin raise exception using errcode = '{}', message = 'on purpose'; end $$"


async def remember(connection: Connection, word: str) -> None:
    await connection.execute("create table if not exists words (word text)")
    await connection.execute("insert into words values ($1)", word)


async def remember_then_fail(database: Database, word: str) -> None:
    async with database.transaction() as tx:
        await remember(tx, word)
        raise LookupError


async def begin_by_hand_then_fail(database: Database) -> None:
    async with database.connection() as connection:
        await connection.execute("begin")
        raise LookupError


async def ask_over_a_cut_connection(database: Database, server: Server) -> None:
    async with database.transaction() as tx:
        await server.maintain(f"select pg_terminate_backend({await tx.fetchval('select pg_backend_pid()')})")
        await tx.fetchval("select 1")


async def close_while_at_work(database: Database) -> None:
    async with database.connection() as connection:
        await database.close()
        await connection.fetchval("select 1")


async def test_a_transaction_commits_at_its_end(database: Database) -> None:
    async with database.transaction() as tx:
        await remember(tx, "kept")
    async with database.connection() as connection:
        assert await connection.fetchval("select word from words") == "kept"


async def test_a_transaction_that_raises_leaves_nothing(database: Database) -> None:
    with pytest.raises(LookupError):
        await remember_then_fail(database, "lost")
    async with database.connection() as connection:
        assert await connection.fetchval("select to_regclass('words')") is None


async def test_json_goes_in_and_out_as_python_values(database: Database) -> None:
    value = {"list": [1, None, "ä"], "nested": {"yes": True}}
    async with database.connection() as connection:
        assert await connection.fetchval("select $1::jsonb", value) == value
        assert await connection.fetchval("select $1::json", value) == value


async def test_tables_are_found_in_our_schema(database: Database) -> None:
    async with database.connection() as connection:
        assert await connection.fetchval("select current_schema()") == "supaclaw"


async def test_behind_a_transaction_pooler_every_statement_finds_our_schema_too(dsn: str) -> None:
    async with await Database.connect(f"{dsn}&pool_mode=transaction") as database:
        assert not database.direct
        async with database.transaction() as tx:
            await remember(tx, "pooled")
        async with database.connection() as connection:
            assert await connection.fetchval("select word from supaclaw.words") == "pooled"
            assert await connection.fetchval("select current_schema()") == "supaclaw"
            assert await connection.fetchval("select count(*) from pg_prepared_statements") == 0


async def test_nothing_is_left_on_a_connection_for_its_next_user(dsn: str) -> None:
    async with await Database.connect(dsn, size=1) as database:
        with pytest.raises(LookupError):
            await begin_by_hand_then_fail(database)
        async with database.connection() as connection:
            assert not connection.is_in_transaction()


async def test_the_fence_of_a_run_that_lost_its_task_is_felt_as_such(database: Database) -> None:
    with pytest.raises(RunLost, match="on purpose"):
        async with database.transaction() as tx:
            await tx.execute(RAISE.format("SW001"))


async def test_a_cut_connection_is_reported_once_and_replaced(database: Database, server: Server) -> None:
    with pytest.raises(DatabaseDown):
        await ask_over_a_cut_connection(database, server)
    async with database.connection() as connection:
        assert await connection.fetchval("select 1") == 1


class TestFrozen:
    """A process that stops in a transaction does not stop the others for good."""

    async def test_what_it_held_is_free_when_its_time_is_over(self, database: Database) -> None:
        async with database.transaction() as tx:
            await tx.execute("create table rows (id int primary key)")
            await tx.execute("insert into rows values (1)")
        with pytest.raises(DatabaseDown):
            await self.freeze(database)
        async with database.connection() as connection:
            assert await connection.fetchval("select id from rows") == 3

    async def freeze(self, database: Database) -> None:
        async with database.transaction() as frozen:
            await take_long(frozen)  # a timer that runs cannot be shortened
            await frozen.execute("set local transaction_timeout to '50ms'")
            await frozen.execute("update rows set id = 2")
            async with database.transaction() as other:
                await other.execute("update rows set id = 3")
            await frozen.execute("select 1")

    @pytest.mark.parametrize("how", ["", "&pool_mode=transaction"])
    async def test_every_transaction_has_its_time_but_for_what_takes_long(self, dsn: str, how: str) -> None:
        async with await Database.connect(f"{dsn}{how}") as database, database.transaction() as tx:
            assert await tx.fetchval("show transaction_timeout") == "2min"
            await take_long(tx)
            assert await tx.fetchval("show transaction_timeout") == "0"


async def test_two_that_lock_each_other_out_both_get_through(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute("create table rows (id int primary key, hits int default 0)")
        await tx.execute("insert into rows values (1), (2)")
    both_hold_one = asyncio.Barrier(2)
    tries = 0

    async def hit(first: int, second: int) -> str:
        met = False

        async def work(tx: Connection) -> str:
            nonlocal met, tries
            tries += 1
            await tx.execute("update rows set hits = hits + 1 where id = $1", first)
            if not met:
                met = True
                await both_hold_one.wait()
            await tx.execute("update rows set hits = hits + 1 where id = $1", second)
            return f"{first}{second}"

        return await database.run(work)

    assert list(await asyncio.gather(hit(1, 2), hit(2, 1))) == ["12", "21"]
    assert tries == 3
    async with database.connection() as connection:
        assert await connection.fetchval("select sum(hits) from rows") == 4


async def test_work_that_never_gets_through_is_given_up_for_now(database: Database) -> None:
    tries = 0

    async def work(tx: Connection) -> None:
        nonlocal tries
        tries += 1
        await tx.execute(RAISE.format("40001"))

    with pytest.raises(TryAgainLater, match="too busy"):
        await database.run(work)
    assert tries == 3


async def test_a_login_that_is_refused_may_work_again(dsn: str) -> None:
    with pytest.raises(DatabaseDown, match=r"refuses the request.*password.*check database.url"):
        await Database.connect(dsn.replace("supaclaw:", "supaclaw:not"))


@pytest.mark.parametrize(
    ("option", "words"), [("sslmode=no-verify", "cannot be used.*must be one of"), ("port=none", "cannot be read")]
)
async def test_an_address_asyncpg_cannot_use_is_for_the_owner_to_mend(option: str, words: str) -> None:
    with pytest.raises(OwnerMustAct, match=words):
        await Database.connect(f"postgresql://u:p@/app?host=/nowhere&{option}")


async def test_what_it_cannot_read_is_not_repeated() -> None:
    with pytest.raises(OwnerMustAct, match="cannot be read") as refused:
        await Database.connect("postgresql://u:hush#cret")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("option", ["no_such_option=1", "statement_timeout=never", "shared_buffers=1", "ssl=true"])
async def test_an_option_that_the_server_refuses_is_named(dsn: str, option: str) -> None:
    with pytest.raises(OwnerMustAct, match=f"refuses an option .*{option.partition('=')[0]}.*; remove it"):
        await Database.connect(f"{dsn}&{option}")


@pytest.mark.parametrize("options", ["channel_binding=prefer&connect_timeout=10", "schema=public&sslaccept=strict"])
async def test_options_of_other_clients_are_no_hindrance(dsn: str, options: str) -> None:
    async with await Database.connect(f"{dsn}&{options}") as database, database.connection() as conn:
        assert await conn.fetchval("select current_schema()") == "supaclaw"


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
async def test_a_database_that_cannot_hold_every_text_is_refused(server: Server, encoding: str) -> None:
    name = f"test_{uuid4().hex}"
    await server.maintain(f"create database {name} encoding '{encoding}' locale 'C' template template0 owner supaclaw")
    with pytest.raises(OwnerMustAct, match=f"encoded in {encoding}.*encoding 'UTF8'"):
        await Database.connect(server.dsn_of(name))
    await server.maintain(f"drop database {name}")


async def test_a_server_that_is_not_there_is_down() -> None:
    with pytest.raises(DatabaseDown):
        await Database.connect(f"postgresql://u:p@/app?host=/nowhere/{uuid4()}-{os.getpid()}")


async def test_closing_does_not_wait_for_ever_for_who_still_works(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_CLOSE_WITHIN", 0.01)
    database = await Database.connect(dsn)
    with pytest.raises(DatabaseDown):
        await close_while_at_work(database)
    with pytest.raises(DatabaseDown):
        async with database.connection():
            pass


@pytest.mark.parametrize("direct", [True, False])
async def test_a_connection_is_nobodys_again_after_a_member_used_it(dsn: str, direct: bool) -> None:
    mode = "session" if direct else "transaction"
    async with await Database.connect(f"{dsn}&pool_mode={mode}", size=1) as database:
        member = PrincipalId(uuid4())
        for bound in (database.bound(member).connection, database.bound(member).transaction):
            async with bound() as conn:
                who = await conn.fetchrow("select current_user::text, supaclaw.member()")
                assert tuple(who or ()) == ("supaclaw_member", member)
            async with database.connection() as conn:
                who = await conn.fetchrow("select current_user::text, supaclaw.member()")
                assert tuple(who or ()) == ("supaclaw", None)


async def test_a_member_who_is_nobody_sees_nothing(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute("insert into principals (id, role, name) values ($1, 'owner', 'Ada')", uuid4())
        await tx.execute("grant select on principals to supaclaw_member")
        await tx.execute("set local role supaclaw_member")
        assert await tx.fetch("select * from principals") == []


async def test_a_transaction_that_meets_an_added_column_is_repeated(database: Database) -> None:
    async def read(tx: Connection) -> list[str]:
        return [row["key"] for row in await tx.fetch("select * from meta")]

    before = await database.run(read)
    await database.run(lambda tx: tx.execute("alter table meta add column mood text"))
    assert await database.run(read) == before

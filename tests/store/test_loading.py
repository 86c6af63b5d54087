import io
from collections.abc import AsyncIterator, Iterable

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.domain.tasks import Lane
from gateway.store.dump import Snapshot, Table, snapshot
from gateway.store.loading import IN_DOUBT, addresses_in_doubt, loading, occupied, restored_from, schema_of
from gateway.store.migrate import migrate
from gateway.store.pool import Database
from tests.store.test_dump import filled
from tests.store.world import World, somebody

__all__ = ["filled"]

Dump = tuple[Snapshot, dict[Table, bytes]]


@pytest.fixture
async def target(empty_dsn: str) -> AsyncIterator[Database]:
    async with await Database.connect(empty_dsn) as database:
        yield database


async def dump(database: Database) -> Dump:
    tables: dict[Table, bytes] = {}
    async with snapshot(database) as seen:
        for table in seen.tables:
            rows = io.BytesIO()
            await seen.copy(table, rows)
            tables[table] = rows.getvalue()
    return seen, tables


async def pieces(raw: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(raw), 1000):
        yield raw[start : start + 1000]


async def load(target: Database, dump: Dump, archive: str = "a1") -> None:
    seen, tables = dump
    await migrate(target, upto=seen.schema)
    async with loading(target) as into:
        for table, rows in tables.items():
            assert await into.copy(table, pieces(rows)) == rows.count(b"\n")
        await into.finish(seen.counters, archive)


async def texts(database: Database, tables: Iterable[Table]) -> dict[str, list[str]]:
    """Every row as Postgres prints it, but for what a restore is meant to change."""
    async with database.connection() as conn:
        return {
            table.name: [row[0] for row in await conn.fetch(f"select t::text from {table.name} t order by 1")]
            for table in tables
            if table.name != "meta"
        }


@pytest.mark.parametrize("way", ["", "&pool_mode=transaction"])
async def test_every_value_comes_back_as_it_was(filled: World, empty_dsn: str, way: str) -> None:
    dumped = await dump(filled.database)
    async with await Database.connect(empty_dsn + way) as target:
        await load(target, dumped)
        again = await dump(target)

        before = await texts(filled.database, dumped[1])
        assert all(before.values())
        assert await texts(target, dumped[1]) == before
    assert {t.name: rows for t, rows in again[1].items() if t.name != "meta"} == {
        t.name: rows for t, rows in dumped[1].items() if t.name != "meta"
    }


async def test_numbers_go_on_where_they_were(filled: World, target: Database) -> None:
    await filled.do("delete from messages where id = (select max(id) from messages where answered_by is null)")
    last = await filled.value("select last_value from messages_id_seq")
    sent = await filled.value("select last_value from outbox_id_seq")
    await load(target, await dump(filled.database))

    async with target.connection() as conn:
        assert await conn.fetchval("select nextval('messages_id_seq')") == last + 1
        assert await conn.fetchval("select nextval('outbox_id_seq')") > sent + 1000, "keys the old host may have used"


async def test_what_was_on_its_way_is_in_doubt_and_what_was_sent_is_sent(world: World, target: Database) -> None:
    for state in ("pending", "sending", "sent", "failed", "uncertain"):
        answer = await world.answer(state)
        await world.do(
            """insert into outbox (principal_id, address_id, message_id, text, state, error)
               values ($1, $2, $3, $4, $4, 'earlier')""",
            world.principal,
            world.address,
            answer,
            state,
        )
    await load(target, await dump(world.database))

    async with target.connection() as conn:
        rows = await conn.fetch("select text, state, error from outbox order by id")
    assert [tuple(row) for row in rows] == [
        ("pending", "uncertain", IN_DOUBT),
        ("sending", "uncertain", IN_DOUBT),
        ("sent", "sent", "earlier"),
        ("failed", "failed", "earlier"),
        ("uncertain", "uncertain", "earlier"),
    ]


async def test_a_run_waits_for_anyone_and_has_lost_no_attempt(world: World, target: Database) -> None:
    old, new = somebody(), somebody()
    await world.chat(old)
    await world.do("insert into leases (name, holder, expires_at) values ('gateway', $1, now() + '1 day')", old)
    [run] = await world.claim(old, lane=Lane.CHAT)
    await load(target, await dump(world.database))

    restored = World(target, world.principal, world.session, world.address)
    assert await restored.column("select status from tasks") == ["pending"]
    [again] = await restored.claim(new, lane=Lane.CHAT)
    assert (again.id, again.attempts, again.token) == (run.id, run.attempts, run.token + 1)
    assert await restored.value("select count(*) from leases") == 0


async def test_what_does_not_fit_leaves_nothing_behind(world: World, target: Database) -> None:
    seen, tables = await dump(world.database)
    [sessions] = [table for table in tables if table.name == "sessions"]
    tables[sessions] = tables[sessions].replace(b"\t", b"\tx", 1)

    with pytest.raises(OwnerMustAct, match="rows of sessions do not fit"):
        await load(target, (seen, tables))
    assert await occupied(target) is None
    assert await restored_from(target) is None


async def test_a_database_says_whether_it_is_empty_and_how_far_it_is(world: World, target: Database) -> None:
    assert (await occupied(target), await schema_of(target)) == (None, 0)
    await migrate(target, upto=2)
    assert (await occupied(target), await schema_of(target)) == (None, 2)
    assert await occupied(world.database) is not None


async def test_it_says_what_it_was_loaded_from(world: World, target: Database) -> None:
    assert await restored_from(target) is None
    await load(target, await dump(world.database), "archive 7")
    assert await restored_from(target) == "archive 7"
    await migrate(target)
    assert await restored_from(world.database) is None


async def test_chats_in_doubt_are_named_once_and_notices_do_not_count(world: World, target: Database) -> None:
    for notice in (False, False, True):
        answer = await world.answer("hello")
        await world.do(
            "insert into outbox (principal_id, address_id, message_id, text, notice) values ($1, $2, $3, 'x', $4)",
            world.principal,
            world.address,
            answer,
            notice,
        )
    await load(target, await dump(world.database))

    async with target.transaction() as conn:
        assert await addresses_in_doubt(conn) == [world.address]
        assert await addresses_in_doubt(conn) == []


async def test_a_database_restored_twice_over_is_named_by_the_last(world: World, target: Database) -> None:
    await world.do("""insert into meta (key, value) values ('restored', '{"archive": "old", "told": true}')""")
    await load(target, await dump(world.database), "new")

    assert await restored_from(target) == "new"
    assert await found_told(target) is False


async def found_told(database: Database) -> bool:
    async with database.connection() as conn:
        return bool(await conn.fetchval("select (value ->> 'told')::bool from meta where key = 'restored'"))

from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.domain.work.tasks import Lane
from gateway.store.connection.pool import Database
from gateway.store.dump import IN_DOUBT, DatabaseSnapshot, Table, addresses_in_doubt, lacks_rows, load, snapshot
from gateway.store.migrate import migrate
from tests.store.test_dump import filled
from tests.store.world import World, somebody

__all__ = ["filled"]

Dump = tuple[DatabaseSnapshot, dict[Table, Path]]


@pytest.fixture
async def target(empty_dsn: str) -> AsyncIterator[Database]:
    async with await Database.connect(empty_dsn) as database:
        yield database


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where dumped rows lie."""
    return tmp_path


async def dump(database: Database, folder: Path) -> Dump:
    files: dict[Table, Path] = {}
    async with snapshot(database) as seen:
        for table in seen.tables:
            files[table] = folder / table.name
            with files[table].open("wb") as target:
                await seen.copy(table, target)
    return seen, files


async def put(target: Database, dumped: Dump, archive: str = "a1") -> None:
    seen, files = dumped
    await migrate(target, upto=seen.schema)
    await load(target, files, seen.counters, archive)


async def texts(database: Database, tables: Iterable[Table]) -> dict[str, list[str]]:
    """Every row as Postgres prints it, but for what a restore is meant to change."""
    async with database.connection() as conn:
        return {
            table.name: [row[0] for row in await conn.fetch(f"select t::text from {table.name} t order by 1")]
            for table in tables
            if table.name != "meta"
        }


@pytest.mark.parametrize("way", ["", "&pool_mode=transaction"])
async def test_every_value_comes_back_as_it_was(filled: World, empty_dsn: str, folder: Path, way: str) -> None:
    dumped = await dump(filled.database, folder)
    async with await Database.connect(empty_dsn + way) as target:
        await put(target, dumped)
        before = await texts(filled.database, dumped[1])
        assert all(before.values())
        assert await texts(target, dumped[1]) == before


async def test_numbers_go_on_where_they_were(filled: World, target: Database, folder: Path) -> None:
    await filled.do("delete from messages where id = (select max(id) from messages where answered_by is null)")
    last = await filled.value("select last_value from messages_id_seq")
    sent = await filled.value("select last_value from outbox_id_seq")
    await put(target, await dump(filled.database, folder))

    async with target.connection() as conn:
        assert await conn.fetchval("select nextval('messages_id_seq')") == last + 1
        assert await conn.fetchval("select nextval('outbox_id_seq')") > sent + 1000, "keys the old host may have used"


async def test_what_was_on_its_way_is_in_doubt_and_what_was_sent_is_sent(
    world: World, target: Database, folder: Path
) -> None:
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
    await put(target, await dump(world.database, folder))

    async with target.connection() as conn:
        rows = await conn.fetch("select text, state, error from outbox order by id")
    assert [tuple(row) for row in rows] == [
        ("pending", "uncertain", IN_DOUBT),
        ("sending", "uncertain", IN_DOUBT),
        ("sent", "sent", "earlier"),
        ("failed", "failed", "earlier"),
        ("uncertain", "uncertain", "earlier"),
    ]


async def test_a_run_waits_for_anyone_and_has_lost_no_attempt(world: World, target: Database, folder: Path) -> None:
    old, new = somebody(), somebody()
    await world.chat(old)
    await world.do("insert into leases (name, holder, expires_at) values ('gateway', $1, now() + '1 day')", old)
    [run] = await world.claim(old, lane=Lane.CHAT)
    await put(target, await dump(world.database, folder))

    restored = World(target, world.principal, world.session, world.address)
    assert await restored.column("select status from tasks") == ["pending"]
    [again] = await restored.claim(new, lane=Lane.CHAT)
    assert (again.id, again.attempts, again.token) == (run.id, run.attempts, run.token + 1)
    assert await restored.value("select count(*) from leases") == 0


async def test_what_does_not_fit_leaves_nothing_behind(world: World, target: Database, folder: Path) -> None:
    dumped = await dump(world.database, folder)
    rows = folder / "sessions"
    rows.write_bytes(rows.read_bytes().replace(b"\t", b"\tx", 1))

    with pytest.raises(OwnerMustAct, match="rows of sessions do not fit"):
        await put(target, dumped)
    async with target.connection() as conn:
        assert await conn.fetchval("select count(*) from principals") == 0


async def test_rows_go_only_where_none_are(world: World, target: Database, folder: Path) -> None:
    assert await lacks_rows(target, 2, unless=None)
    await migrate(target, upto=2)
    assert await lacks_rows(target, 2, unless=None)
    with pytest.raises(OwnerMustAct, match="the database is not empty"):
        await lacks_rows(target, 1, unless=None)
    await put(target, await dump(world.database, folder), "archive 7")
    assert not await lacks_rows(target, 1, unless="archive 7")
    for other in (None, "archive 8"):
        with pytest.raises(OwnerMustAct, match="the database is not empty"):
            await lacks_rows(target, 99, unless=other)


async def test_chats_in_doubt_are_named_once_and_notices_do_not_count(
    world: World, target: Database, folder: Path
) -> None:
    for notice in (False, False, True):
        answer = await world.answer("hello")
        await world.do(
            "insert into outbox (principal_id, address_id, message_id, text, notice) values ($1, $2, $3, 'x', $4)",
            world.principal,
            world.address,
            answer,
            notice,
        )
    await put(target, await dump(world.database, folder))

    async with target.transaction() as conn:
        assert await addresses_in_doubt(conn) == [world.address]
        assert await addresses_in_doubt(conn) == []


async def test_a_database_restored_twice_over_is_named_by_the_last(
    world: World, target: Database, folder: Path
) -> None:
    await world.do("""insert into meta (key, value) values ('restored', '{"archive": "old", "told": true}')""")
    await put(target, await dump(world.database, folder), "new")

    async with target.connection() as conn:
        found = await conn.fetchval("select value from meta where key = 'restored'")
    assert found == {"archive": "new", "told": False}

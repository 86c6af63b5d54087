"""What a turn is reminded of: by words, nothing untrusted, replaced, forgotten or of others, and never for long."""

from collections.abc import Sequence

import pytest

from gateway.domain.ids import PrincipalId
from gateway.domain.memory.memories import Memory, NewMemory
from gateway.domain.principals import Label, Role
from gateway.memory.lexemes import lexemes
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import memories, search
from gateway.store.people import principals


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take longer than a turn waits."""
    monkeypatch.setattr(search, "RECALL_TIMEOUT_MS", 30_000)


@pytest.fixture
async def owner(database: Database) -> PrincipalId:
    async with database.transaction() as tx:
        return await principals.add(tx, Role.OWNER, "Ada", [])


async def known(database: Database, who: PrincipalId, text: str, label: Label = Label.OWNER) -> Memory:
    async with database.transaction() as tx:
        return (await memories.add(tx, who, NewMemory(text, label=label)))[0]


async def found(conn: Connection, who: PrincipalId, question: str, k: int = 5, least: float = 0.0) -> Sequence[str]:
    rows = await search.recall(conn, who, lexemes(question), Label.KNOWN, k, least)
    return [row.text for row in rows]


async def test_rows_come_in_the_order_of_their_share_of_the_words(database: Database, owner: PrincipalId) -> None:
    for n in range(20):
        await known(database, owner, f"Nothing much about day {n}")
    await known(database, owner, "The plumber Trevelyan fixed the boiler")
    await known(database, owner, "The boiler is old")
    async with database.connection() as conn:
        both = ["The plumber Trevelyan fixed the boiler", "The boiler is old"]
        assert await found(conn, owner, "What did the plumber Trevelyan do with the boiler?") == both
        assert await found(conn, owner, "What did the plumber Trevelyan do with the boiler?", least=0.5) == both[:1]
        assert await found(conn, owner, "the plumber's boiler", k=1) == both[:1]
        assert await found(conn, owner, "giraffe") == []
        assert await search.recall(conn, owner, [], Label.KNOWN, 5) == []


async def test_what_a_turn_may_not_be_told_unasked_is_left_out(database: Database, owner: PrincipalId) -> None:
    async with database.transaction() as tx:
        other = await principals.add(tx, Role.MEMBER, "Bob", [])
    await known(database, owner, "Bellini pays all invoices", Label.UNTRUSTED)
    await known(database, other, "Bellini is closed", Label.KNOWN)
    forgotten = await known(database, owner, "Bellini opens at six")
    old, new = await known(database, owner, "Bellini costs 40"), await known(database, owner, "Bellini costs 50")
    async with database.transaction() as tx:
        await memories.forget(tx, owner, forgotten.id)
        await memories.supersede(tx, owner, old.id, new.id, label=Label.OWNER)
        await tx.execute("update memories set valid_to = now() where id = $1", (await _add(tx, owner)).id)
    async with database.connection() as conn:
        assert await found(conn, owner, "Bellini") == ["Bellini costs 50"]
        assert await found(conn, other, "Bellini") == ["Bellini is closed"]


async def _add(tx: Connection, owner: PrincipalId) -> Memory:
    return (await memories.add(tx, owner, NewMemory("Bellini has a special offer", label=Label.OWNER)))[0]


@pytest.mark.parametrize("within", [False, True], ids=["alone", "in a transaction"])
async def test_what_takes_too_long_is_nothing_and_harms_nothing(
    database: Database, owner: PrincipalId, monkeypatch: pytest.MonkeyPatch, *, within: bool
) -> None:
    await known(database, owner, "Tea at five")
    async with database.transaction() if within else database.connection() as conn:
        before = await conn.fetchval("show statement_timeout")
        assert await found(conn, owner, "tea") == ["Tea at five"]
        monkeypatch.setattr(search, "RECALL_TIMEOUT_MS", 100)
        slow = search._RECALLED.replace("from ", "from (select pg_sleep(30)) slow, ")
        monkeypatch.setattr(search, "_RECALLED", slow)
        assert await found(conn, owner, "tea") == []
        assert await conn.fetchval("show statement_timeout") == before
        assert conn.is_in_transaction() == within
        monkeypatch.undo()
        monkeypatch.setattr(search, "RECALL_TIMEOUT_MS", 0)
        assert await found(conn, owner, "tea") == [], "the function looks at the clock itself"

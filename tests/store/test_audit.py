"""The audit trail: each row is bound to the one before it, and holds nothing that was said."""

import pytest

from gateway.domain.errors import DatabaseDown
from gateway.domain.ids import PrincipalId
from gateway.store.connection.pool import Connection, Database
from gateway.store.trust import audit
from gateway.store.trust.audit import Event
from tests.store.world import found


async def write(database: Database, *subjects: str) -> None:
    for subject in subjects:
        await database.run(lambda tx, subject=subject: audit.note(tx, Event.RUN, subject, by="fake:1", detail="x"))


async def verdict(database: Database) -> audit.AuditVerdict:
    return await database.run(audit.verify)


async def tamper(database: Database, statement: str) -> None:
    """As somebody does who owns the database."""
    async with database.transaction() as tx:
        await tx.execute("alter table audit disable trigger audit_kept")
        await tx.execute(statement)
        await tx.execute("alter table audit enable trigger audit_kept")


async def test_an_empty_and_a_whole_trail_are_in_order(database: Database) -> None:
    assert await verdict(database) == audit.AuditVerdict(0, "")
    await write(database, "A1", "A2", "A3")
    found = await verdict(database)
    assert (found.rows, found.broken, len(found.head)) == (3, "", 64)
    async with database.connection() as conn:
        assert [row.subject for row in await audit.newest(conn, 2)] == ["A3", "A2"]
        assert await audit.holds(conn, found.head)
        assert not await audit.holds(conn, "00")


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("update audit set subject = 'A9' where seq = 2", "row 2 was changed"),
        ("update audit set principal_id = gen_random_uuid() where seq = 1", "row 1 was changed"),
        ("update audit set at = at - interval '1 second' where seq = 3", "row 3 was changed"),
        ("delete from audit where seq = 2", "row 2 is missing"),
        ("delete from audit where seq = 1", "row 1 is missing"),
        ("update audit set hash = sha256('x') where seq = 2", "row 2 was changed"),
        ("update audit set prev = sha256('x') where seq = 3", "row 3 does not follow row 2"),
    ],
)
async def test_the_first_broken_link_is_named(database: Database, statement: str, told: str) -> None:
    await write(database, "A1", "A2", "A3")
    await tamper(database, statement)
    assert (await verdict(database)).broken == told


@pytest.mark.parametrize("statement", ["update audit set subject = ''", "delete from audit", "truncate audit"])
async def test_nothing_is_changed_or_removed(database: Database, statement: str) -> None:
    await write(database, "A1")
    with pytest.raises(DatabaseDown, match="only added to"):
        async with database.transaction() as tx:
            await tx.execute(statement)


async def test_what_is_rolled_back_leaves_no_gap(database: Database) -> None:
    async def undone(tx: Connection) -> None:
        await audit.note(tx, Event.RUN, "A1")
        raise LookupError

    with pytest.raises(LookupError):
        await database.run(undone)
    await write(database, "A2")
    assert (await verdict(database)) == audit.AuditVerdict(1, (await verdict(database)).head)


async def test_who_and_what_are_kept_as_keyed_hashes(database: Database) -> None:
    world = await found(database)
    owner: PrincipalId = world.principal
    await database.run(
        lambda tx: audit.note(tx, Event.TOKEN_MADE, "t", principal=owner, by="telegram:123", detail="xyzzy")
    )
    await write(database, "A1")
    async with database.connection() as conn:
        text = str([dict(row) for row in await conn.fetch("select * from audit")])
        equal = await conn.fetchval("select count(distinct actor) from audit")
    assert "xyzzy" not in text
    assert "telegram:123" not in text
    assert equal == 2

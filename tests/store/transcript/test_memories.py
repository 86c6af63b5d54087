from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label, Role
from gateway.store.people import principals
from gateway.store.transcript import memories
from gateway.store.transcript.memories import MemoryRow
from tests.store.world import World


async def add(
    world: World, text: str, *, principal: PrincipalId | None = None, label: Label = Label.OWNER
) -> MemoryRow | None:
    async with world.database.transaction() as tx:
        return await memories.add(
            tx,
            principal or world.principal,
            text,
            label=label,
            origin="compaction",
            session=world.session,
            first_seq=1,
            last_seq=7,
        )


async def test_a_fact_says_where_it_was_learned(world: World) -> None:
    row = await add(world, "Ada drinks green tea.", label=Label.UNTRUSTED)
    assert row is not None
    assert (row.principal_id, row.text, row.session_id) == (world.principal, "Ada drinks green tea.", world.session)
    assert (row.label, row.origin, row.first_seq, row.last_seq) == (Label.UNTRUSTED, "compaction", 1, 7)
    assert isinstance(row.label, Label)


async def test_the_same_words_are_kept_once_for_each_person(world: World) -> None:
    async with world.database.transaction() as tx:
        other = await principals.add(tx, Role.MEMBER, "Bob", [])
    assert await add(world, "Tea at five.") is not None
    assert await add(world, "Tea at five.", label=Label.KNOWN) is None
    assert await add(world, "Tea at five.", principal=other) is not None
    assert await world.column("select label from memories order by id") == [Label.OWNER, Label.OWNER]


async def test_what_no_database_takes_is_mended(world: World) -> None:
    row = await add(world, "nul \x00 and half a pair \ud800")
    assert row is not None
    assert row.text == "nul  and half a pair ?"

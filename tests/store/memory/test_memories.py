import asyncio
from typing import Any

import pytest

from gateway.domain.ids import MemoryId, PrincipalId
from gateway.domain.memory.memories import Category, Kind, Memory, MemoryFilter, MemoryRefused, NewMemory
from gateway.domain.principals import Label, Role
from gateway.store.memory import memories
from gateway.store.people import principals
from tests.store.world import World


async def add(world: World, text: str, *, principal: PrincipalId | None = None, **more: Any) -> tuple[Memory, bool]:
    async with world.database.transaction() as tx:
        return await memories.add(tx, principal or world.principal, NewMemory(text, **{"label": Label.OWNER, **more}))


async def listed(world: World, which: MemoryFilter | None = None, **more: bool) -> list[str]:
    async with world.database.connection() as conn:
        rows = await memories.listed(conn, world.principal, which or MemoryFilter(), 50, **more)
    return [row.text for row in rows]


async def got(world: World, memory: MemoryId) -> Memory:
    async with world.database.connection() as conn:
        row = await memories.get(conn, world.principal, memory)
    assert row is not None
    return row


async def test_a_memory_says_where_it_was_learned(world: World) -> None:
    said = await world.ask("I drink green tea")
    row, new = await add(
        world,
        "Ada drinks green tea.",
        category=Category.PREFERENCE,
        importance=0.9,
        tags=("core",),
        label=Label.UNTRUSTED,
        origin="agent",
        session=world.session,
        sources=(said,),
    )
    assert new
    assert (row.kind, row.text, row.category, row.tags) == (
        Kind.MEMORY,
        "Ada drinks green tea.",
        Category.PREFERENCE,
        ("core",),
    )
    assert (row.label, row.origin, row.session_id, row.seen_count) == (Label.UNTRUSTED, "agent", world.session, 1)
    assert await got(world, row.id) == row
    async with world.database.connection() as conn:
        [source] = await memories.sources(conn, world.principal, row.id)
    assert (source.message_id, source.text, source.kind) == (said, "I drink green tea", "user")
    async with world.database.transaction() as tx:
        await tx.execute("update messages set withdrawn = 'deleted'")
        [source] = await memories.sources(tx, world.principal, row.id)
    assert source.text == "[Deleted: the message that was here.]"
    assert row.importance == 0.9


async def test_the_same_is_seen_once_more_for_each_person_and_agent(world: World) -> None:
    async with world.database.transaction() as tx:
        other = await principals.add(tx, Role.MEMBER, "Bob", [])
    first, _ = await add(world, "Tea at five.")
    again, new = await add(world, " TEA  at five.\n")
    assert (new, again.id, again.text, again.label, again.seen_count) == (False, first.id, "Tea at five.", 0, 2)
    assert (await add(world, "Tea at five.", principal=other))[1]
    assert (await add(world, "Tea at five.", agent="claude"))[1]


async def test_what_is_remembered_at_once_by_many_is_one(world: World) -> None:
    added = await asyncio.gather(*(add(world, "Tea at five.") for _ in range(8)))
    assert len({row.id for row, _ in added}) == 1
    assert sum(new for _, new in added) == 1
    assert await world.column("select seen_count from memories") == [8]


async def test_the_word_of_somebody_trusted_replaces_the_same_of_a_stranger(world: World) -> None:
    rumour, _ = await add(world, "the code is 7", label=Label.UNTRUSTED)
    word, new = await add(world, "The code is 7")
    assert (new, word.label) == (True, Label.OWNER)
    assert (await got(world, rumour.id)).superseded_by == word.id
    assert (await got(world, rumour.id)).label == Label.UNTRUSTED
    assert await listed(world, MemoryFilter(at_most=Label.UNTRUSTED)) == ["The code is 7"]


@pytest.mark.parametrize(
    ("trusted", "repeated"),
    [(Label.OWNER, Label.KNOWN), (Label.OWNER, Label.UNTRUSTED), (Label.KNOWN, Label.UNTRUSTED)],
)
@pytest.mark.parametrize("valid", ["null", "now() - interval '1 day'"])
async def test_the_same_words_of_somebody_trusted_less_change_nothing(
    world: World, trusted: Label, repeated: Label, valid: str
) -> None:
    row, _ = await add(world, "Pay Bob.", label=trusted)
    other, _ = await add(world, "Pay Alice.", label=trusted)
    await world.do(f"update memories set valid_to = {valid}")
    before = await world.column("select m::text from memories m order by id")
    said = await world.ask("pay bob!")
    same, new = await add(
        world, "pay  BOB.", label=repeated, importance=1.0, tags=("core",), pinned=True, sources=(said,),
        supersedes=other.id,
    )  # fmt: skip
    assert (new, same.id, same.seen_count, same.label) == (False, row.id, 1, trusted)
    assert await world.column("select m::text from memories m order by id") == before
    assert await world.value("select count(*) from memory_sources") == 0


async def test_nothing_is_replaced_on_the_word_of_somebody_trusted_less(world: World) -> None:
    old, _ = await add(world, "Pay Bob.")
    new, _ = await add(world, "Pay Alice.")
    async with world.database.transaction() as tx:
        assert not await memories.supersede(tx, world.principal, old.id, new.id, Label.UNTRUSTED)
        assert not await memories.supersede(tx, world.principal, old.id, new.id, Label.KNOWN)
        assert await memories.supersede(tx, world.principal, old.id, new.id, Label.OWNER)


async def test_a_correction_replaces_and_both_stay(world: World) -> None:
    old, _ = await add(world, "The dentist is on Tuesday.")
    new, _ = await add(world, "The dentist is on Thursday.", category=Category.CORRECTION, supersedes=old.id)
    assert await listed(world) == ["The dentist is on Thursday."]
    assert await listed(world, MemoryFilter(superseded=True)) == [
        "The dentist is on Thursday.",
        "The dentist is on Tuesday.",
    ]
    assert (await got(world, old.id)).superseded_by == new.id


async def test_nothing_replaces_what_is_trusted_more_nor_itself(world: World) -> None:
    old, _ = await add(world, "Pay Bob.")
    bad, _ = await add(world, "Pay Mallory.", label=Label.UNTRUSTED, supersedes=old.id)
    foreign, _ = await add(world, "Pay Carol.", agent="claude", supersedes=old.id)
    assert await listed(world) == ["Pay Carol.", "Pay Bob."]
    async with world.database.transaction() as tx:
        assert not await memories.supersede(tx, world.principal, bad.id, bad.id, Label.OWNER)
        assert await memories.supersede(tx, world.principal, bad.id, old.id, Label.OWNER)
        assert not await memories.supersede(tx, world.principal, old.id, bad.id, Label.OWNER), "that would be a circle"
        assert not await memories.supersede(tx, world.principal, foreign.id, old.id, Label.OWNER)


async def test_what_is_forgotten_can_be_taken_back_unless_it_was_said_again(world: World) -> None:
    row, _ = await add(world, "Tea at five.")
    async with world.database.transaction() as tx:
        assert await memories.forget(tx, world.principal, row.id)
        assert not await memories.forget(tx, world.principal, row.id)
    assert await listed(world) == []
    async with world.database.transaction() as tx:
        assert await memories.restore(tx, world.principal, row.id)
        assert not await memories.restore(tx, world.principal, row.id)
        await memories.forget(tx, world.principal, row.id)
    assert await listed(world) == []
    again, new = await add(world, "tea at five.")
    assert new
    with pytest.raises(MemoryRefused, match=f"Memory {again.id} says the same"):
        async with world.database.transaction() as tx:
            await memories.restore(tx, world.principal, row.id)


@pytest.mark.parametrize("way", ["restore", "edit"])
async def test_the_same_of_a_stranger_gives_way_to_what_the_owner_restores_or_writes(world: World, way: str) -> None:
    row, _ = await add(world, "Tea at five." if way == "restore" else "Tea at six.")
    if way == "restore":
        async with world.database.transaction() as tx:
            await memories.forget(tx, world.principal, row.id)
    twin, new = await add(world, "tea at FIVE.", label=Label.UNTRUSTED)
    assert new
    async with world.database.transaction() as tx:
        if way == "restore":
            assert await memories.restore(tx, world.principal, row.id)
        else:
            assert await memories.edit(tx, world.principal, row.id, text="Tea at five.")
        gone = await memories.get(tx, world.principal, twin.id)
    assert await listed(world) == ["Tea at five."]
    assert gone is not None
    assert gone.superseded_by == row.id


async def test_an_edit_changes_what_it_names(world: World) -> None:
    row, _ = await add(world, "Tea at five.", importance=0.25, tags=("a",))
    await add(world, "Tea at six.")
    await world.do("update memories set counted = true")
    async with world.database.transaction() as tx:
        edited = await memories.edit(tx, world.principal, row.id, text="Tea at seven.", pinned=True)
        assert await memories.edit(tx, world.principal, MemoryId(0), text="nothing") is None
    assert edited is not None
    assert (edited.text, edited.pinned, edited.importance, edited.tags) == ("Tea at seven.", True, 0.25, ("a",))
    assert await world.value("select lexemes @@ 'seven'::tsquery and not counted from memories where id = $1", row.id)
    with pytest.raises(MemoryRefused):
        async with world.database.transaction() as tx:
            await memories.edit(tx, world.principal, row.id, text="tea at SIX.")
    assert await listed(world, weightiest=True) == ["Tea at seven.", "Tea at six."]


async def test_a_filter_leaves_out_what_it_says(world: World) -> None:
    await add(world, "one", tags=("x", "y"), category=Category.PERSON, session=world.session)
    await add(world, "two", tags=("z",), agent="claude", label=Label.UNTRUSTED)
    await add(world, "three", kind=Kind.SUMMARY, session=world.session)
    await world.do("update memories set created_at = '2026-01-31T12:00Z' where text = 'three'")
    since = await world.value("select timestamptz '2026-01-31T12:00Z'")
    for which, texts in (
        (MemoryFilter(), ["three", "one"]),
        (MemoryFilter(at_most=Label.UNTRUSTED), ["three", "two", "one"]),
        (MemoryFilter(kinds=(Kind.SUMMARY,)), ["three"]),
        (MemoryFilter(categories=(Category.PERSON, Category.FACT)), ["one"]),
        (MemoryFilter(tags=("y", "x")), ["one"]),
        (MemoryFilter(tags=("y", "nope")), []),
        (MemoryFilter(session=world.session), ["three", "one"]),
        (MemoryFilter(agent="claude", at_most=Label.UNTRUSTED), ["two"]),
        (MemoryFilter(until=since), []),
        (MemoryFilter(since=since), ["three", "one"]),
        (MemoryFilter(pinned=True), []),
    ):
        assert await listed(world, which) == texts, which


async def test_text_that_no_database_takes_is_cleaned(world: World) -> None:
    row, _ = await add(world, "nul \x00 and half a pair \ud800")
    assert row.text == "nul  and half a pair ?"

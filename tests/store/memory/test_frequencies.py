import asyncio

from gateway.domain.memory import NewMemory
from gateway.domain.principals import Label
from gateway.store.memory import frequencies, memories
from tests.store.memory.test_memories import add
from tests.store.world import World

DF = "select lexeme || ' ' || df from memory_df order by 1"


async def count(world: World, limit: int = 100) -> int:
    async with world.database.transaction() as tx:
        return await frequencies.count(tx, limit)


async def test_a_word_counts_once_for_each_row(world: World) -> None:
    await add(world, "tea tea milk")
    await add(world, "milk")
    assert await count(world) == 2
    assert await world.column(DF) == ["milk 2", "tea 1"]
    assert await world.column("select n from memory_stats") == [2]
    assert await count(world) == 0


async def test_what_is_counted_by_several_at_once_or_breaks_off_counts_once(world: World) -> None:
    for n in range(12):
        await add(world, f"tea {n}")
    async with world.database.connection() as conn:
        broken = conn.transaction()
        await broken.start()
        await frequencies.count(conn, 5)
        await broken.rollback()
    await asyncio.gather(*(count(world, 5) for _ in range(4)))
    assert await world.column("select df from memory_df where lexeme = 'tea'") == [12]
    assert await world.column("select n from memory_stats") == [12]


async def test_what_is_removed_or_reworded_is_taken_off(world: World) -> None:
    row, _ = await add(world, "green tea")
    gone, _ = await add(world, "black tea")
    uncounted, _ = await add(world, "no tea")
    await world.do("delete from memories where id = $1", uncounted.id)
    await count(world)
    async with world.database.transaction() as tx:
        await memories.edit(tx, world.principal, row.id, text="red tea")
        await memories.edit(tx, world.principal, row.id, text="red wine", pinned=True)
    await world.do("delete from memories where id = $1", gone.id)
    await count(world)
    assert await world.column(DF) == ["red 1", "wine 1"]
    assert await world.column("select n from memory_stats") == [1]


async def test_memories_of_before_get_their_words_and_the_same_become_one(world: World) -> None:
    for text in ("Tea at five.", "tea at  five."):
        await world.do(
            """insert into memories (principal_id, text, label, origin, session_id, first_seq, last_seq, category)
               values ($1, $2, 0, 'compaction', $3, 1, 2, 'fact')""",
            *(world.principal, text, world.session),
        )
    while await count(world):
        pass
    assert await world.column("select superseded_by is null from memories order by id") == [True, False]
    assert await world.column("select df from memory_df where lexeme = 'tea'") == [2]
    async with world.database.transaction() as tx:
        again, new = await memories.add(tx, world.principal, NewMemory("tea at five.", label=Label.OWNER))
    assert (new, again.seen_count) == (False, 2)

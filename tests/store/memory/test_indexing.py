import asyncio
from datetime import UTC, datetime

from gateway.domain.conversation.transcript import AssistantText, UserText
from gateway.domain.ids import PrincipalId
from gateway.domain.memory.memories import NewMemory
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection
from gateway.store.memory import indexing, memories
from gateway.store.transcript import messages, sessions, unread
from tests.store.memory.test_memories import add
from tests.store.world import World, held

ROWS = """select m.place, m.label, s.kind, s.text, m.agent from memories m join messages s on s.id = m.message_id
          where m.session_id = $1 order by m.place"""


async def index(world: World, principal: PrincipalId | None = None, limit: int = 100) -> int:
    async with world.database.transaction() as tx:
        return await indexing.index_turns(tx, principal, limit)


async def indexed(world: World) -> list[tuple[object, ...]]:
    async with world.database.connection() as conn:
        return [tuple(row) for row in await conn.fetch(ROWS, world.session)]


async def talk(world: World, *texts: str) -> None:
    """A question and its answer, of each."""
    for text in texts:
        await world.ask(text)
        async with world.database.transaction() as tx:
            await sessions.lock(tx, world.session)
            await unread.take(tx, world.session, joining=False)
        await world.answer(f"answer to {text}")


async def say(tx: Connection, world: World, entry: AssistantText | UserText, **more: str) -> None:
    await messages.say(tx, world.session, world.principal, entry, label=Label.UNTRUSTED, **more)


async def test_what_was_said_is_a_row_with_the_label_and_the_words_of_its_message(world: World) -> None:
    await world.do("update sessions set agent = 'claude'")
    await talk(world, "where is the Key")
    assert await index(world, world.principal) == 2
    assert await indexed(world) == [
        (1, 0, "user", "where is the Key", "claude"),
        (2, 0, "assistant", "answer to where is the Key", "claude"),
    ]
    assert await world.column("select message_id from memories where lexemes @@ 'key' order by id") == [1, 2]
    async with world.database.connection() as conn:
        row = await memories.get(conn, world.principal, (await world.column("select min(id) from memories"))[0])
        said = await messages.get(conn, (await world.column("select min(id) from messages"))[0])
    assert row is not None
    assert said is not None
    assert (row.text, row.role, row.category, row.created_at) == ("where is the Key", "user", None, said.sent_at)


async def test_places_are_dense_whatever_lies_between_and_however_small_the_batches(world: World) -> None:
    async with world.database.transaction() as tx:
        await sessions.lock(tx, world.session)
        await say(tx, world, AssistantText("let me see", final=False))
        await say(tx, world, AssistantText(" "))
    await talk(world, "a", "b")
    while await index(world, limit=2):
        pass
    assert [(place, text) for place, _, _, text, _ in await indexed(world)] == [
        (1, "a"),
        (2, "answer to a"),
        (3, "b"),
        (4, "answer to b"),
    ]
    assert await index(world) == 0


async def test_what_is_unread_comes_when_it_is_read(world: World) -> None:
    await talk(world, "a")
    await world.ask("later")
    await index(world)
    assert len(await indexed(world)) == 2
    async with world.database.transaction() as tx:
        await sessions.lock(tx, world.session)
        await unread.take(tx, world.session, joining=False)
    await index(world)
    assert [text for _, _, _, text, _ in await indexed(world)] == ["a", "answer to a", "later"]


async def test_what_nobody_asked_for_is_no_conversation(world: World) -> None:
    async with world.database.transaction() as tx:
        await sessions.lock(tx, world.session)
        await tx.execute("update sessions set unattended = true where id = $1", world.session)
        for entry in (UserText("look around", datetime.now(UTC)), AssistantText("all quiet")):
            await say(tx, world, entry, origin="heartbeat")
    assert await index(world) == 2
    assert await indexed(world) == []


async def test_two_at_once_make_each_row_once_and_a_search_does_not_wait(world: World) -> None:
    await talk(world, *(f"question {n}" for n in range(5)))
    async with held(
        world.database, "select pg_advisory_xact_lock(hashtextextended('memory ' || $1, 0))", str(world.principal)
    ):
        assert await index(world, world.principal) == 0
    await asyncio.gather(*(index(world, limit=3) for _ in range(6)))
    while await index(world):
        pass
    assert [place for place, *_ in await indexed(world)] == list(range(1, 11))


async def test_what_breaks_off_is_done_again(world: World) -> None:
    await talk(world, "a")
    connection = world.database.connection()
    async with connection as conn:
        transaction = conn.transaction()
        await transaction.start()
        await indexing.index_turns(conn, None, 100)
        await transaction.rollback()
    assert await indexed(world) == []
    await index(world)
    assert len(await indexed(world)) == 2


DF = "select lexeme || ' ' || df from memory_df order by 1"


async def count(world: World, limit: int = 100) -> int:
    async with world.database.transaction() as tx:
        return await indexing.count_words(tx, limit)


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
        await indexing.count_words(conn, 5)
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

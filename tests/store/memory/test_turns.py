import asyncio
from datetime import UTC, datetime

from gateway.domain.conversation.transcript import AssistantText, UserText
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Label
from gateway.store import sessions
from gateway.store.connection.pool import Connection
from gateway.store.memory import memories, turns
from gateway.store.transcript import messages, unread
from tests.store.world import World, held

ROWS = """select m.place, m.label, s.kind, s.text, m.agent from memories m join messages s on s.id = m.message_id
          where m.session_id = $1 order by m.place"""


async def index(world: World, principal: PrincipalId | None = None, limit: int = 100) -> int:
    async with world.database.transaction() as tx:
        return await turns.index_new(tx, principal, limit)


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
        await turns.index_new(conn, None, 100)
        await transaction.rollback()
    assert await indexed(world) == []
    await index(world)
    assert len(await indexed(world)) == 2

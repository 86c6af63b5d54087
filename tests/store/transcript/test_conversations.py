from datetime import UTC, datetime
from uuid import uuid4

from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.transcript import Notice, UserText
from gateway.domain.ids import SessionId
from gateway.domain.memory.memories import Kind, NewMemory
from gateway.domain.principals import Label
from gateway.store.delivery import addresses
from gateway.store.memory import memories
from gateway.store.people import principals
from gateway.store.transcript import conversations, messages, sessions
from gateway.store.transcript.conversations import Conversation
from tests.store.world import World


async def listed(world: World, **more: bool) -> list[Conversation]:
    async with world.database.connection() as conn:
        return await conversations.listed(conn, world.principal, 10, **more)


async def said(
    world: World, text: str, origin: str = "web", *, at: Address | None = None, unattended: bool = False
) -> SessionId:
    """A session of its own."""
    async with world.database.transaction() as tx:
        session = await sessions.start(tx, world.principal, Label.OWNER, unattended=unattended)
        place = None
        if at is not None:
            await addresses.add(tx, at, world.principal, session, private=True)
            found = await addresses.find(tx, at)
            place = found.id if found else None
        told = UserText(text, datetime.now(UTC))
        await messages.say(tx, session, world.principal, told, label=Label.OWNER, origin=origin, address=place)
    return session


async def test_a_chat_is_listed_by_what_was_said_first(world: World) -> None:
    assert await listed(world) == []
    await world.ask("Plan a trip to Lisbon. In May.")
    [of] = await listed(world)
    assert (of.id, of.title, of.given, of.channel, of.open_on) == (
        world.session,
        "Plan a trip to Lisbon",
        "",
        "fake",
        ("fake",),
    )
    assert (of.ours, of.answering, of.unattended) == (True, False, False)


async def test_one_in_which_nobody_said_anything_is_none(world: World) -> None:
    async with world.database.transaction() as tx:
        await messages.say(tx, world.session, world.principal, Notice("New session started"), label=Label.OWNER)
    assert await listed(world) == []


async def test_its_summary_gives_the_title_until_it_is_forgotten_and_its_person_decides(world: World) -> None:
    await world.ask("hi")
    async with world.database.transaction() as tx:
        summary = NewMemory("A trip to Lisbon. Open: the hotel.", kind=Kind.SUMMARY, session=world.session)
        kept, _ = await memories.add(tx, world.principal, summary)
    assert [of.title for of in await listed(world)] == ["A trip to Lisbon"]
    async with world.database.transaction() as tx:
        await conversations.rename(tx, world.session, "  Lisbon!  ")
    assert [(of.title, of.given) for of in await listed(world)] == [("Lisbon!", "Lisbon!")]
    async with world.database.transaction() as tx:
        await conversations.rename(tx, world.session, " ")
        await tx.execute("update memories set forgotten_at = now() where id = $1", kept.id)
    assert [(of.title, of.given) for of in await listed(world)] == [("hi", "")]


async def test_what_ran_by_itself_is_apart(world: World) -> None:
    chat = await said(world, "hello", at=Address("web", "owner", "main"))
    run = await said(world, "Water the plants", "schedule", unattended=True)
    assert [of.id for of in await listed(world)] == [chat]
    [of] = await listed(world, unattended=True)
    assert (of.id, of.channel, of.ours) == (run, "schedule", False)


async def test_only_a_persons_own_chats_may_go_on(world: World) -> None:
    for at, origin in (
        (Address("terminal", "local", "main"), "terminal"),
        (Address("terminal", "token", "main"), "terminal"),
        (Address("api", "token", "c1"), "api"),
        (None, "earlier"),
        (None, "import:chatgpt"),
    ):
        await said(world, origin, origin, at=at)
    assert [(of.channel, of.ours) for of in reversed(await listed(world))] == [
        ("terminal", True),
        ("terminal", False),
        ("api", False),
        ("api", False),
        ("import", False),
    ]


async def test_nobody_elses_is_found_by_any_way(world: World) -> None:
    await world.ask("hello")
    async with world.database.transaction() as tx:
        other = await principals.ensure_member(tx, "Bo", "fake:2")
        await conversations.rename(tx, world.session, "Lisbon")
        assert await conversations.listed(tx, other, 10) == []
        assert await conversations.these(tx, other, [world.session]) == {}
        assert await conversations.beginning(tx, other, str(world.session)) is None
        assert await conversations.called(tx, other, "lisbon", 10) == []
        [of] = await conversations.called(tx, world.principal, "LISB", 10)
        assert await conversations.beginning(tx, world.principal, str(world.session)[:8].upper()) == of
        assert await conversations.beginning(tx, world.principal, "") == of, "the only one there is"
        assert await conversations.beginning(tx, world.principal, "%") is None
        assert await conversations.these(tx, world.principal, [SessionId(uuid4())]) == {}


async def test_two_that_begin_alike_are_none(world: World) -> None:
    await world.ask("hello")
    await said(world, "again")
    async with world.database.connection() as conn:
        assert await conversations.beginning(conn, world.principal, "") is None


async def test_a_stretch_begins_where_it_is_told_to(world: World) -> None:
    for text in ("one", "two", "three"):
        await world.answer(text)
    async with world.database.connection() as conn:
        rows = await conversations.stretch(conn, world.session, 2, 1)
    assert [row.text for row in rows] == ["two"]

from uuid import uuid4

from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import InstanceId, SessionId
from gateway.domain.principals import Label
from gateway.store.delivery import addresses
from gateway.store.transcript import sessions
from gateway.store.work import tasks, triggers
from tests.store.world import HOME, World, blocked, held

SAID = """insert into messages (session_id, principal_id, kind, text, label, origin)
          values ($1, $2, 'user', '', 0, 'fake')"""


async def test_a_label_rises_and_never_falls(world: World) -> None:
    labels = []
    for label in (Label.OWNER, Label.UNTRUSTED, Label.KNOWN, Label.OWNER):
        async with world.database.transaction() as tx:
            await sessions.taint(tx, world.session, label)
            labels.append(await sessions.label(tx, world.session))
    assert labels == [Label.OWNER, Label.UNTRUSTED, Label.UNTRUSTED, Label.UNTRUSTED]


async def test_one_at_a_time_holds_a_session(world: World) -> None:
    async def lock() -> None:
        async with world.database.transaction() as tx:
            await sessions.lock(tx, world.session)

    async with held(world.database, "select from sessions where id = $1 for no key update", world.session):
        waiting = await blocked(world.database, lock())
        # A row that refers to the session can be added all the same.
        await world.do(
            SAID,
            world.session,
            world.principal,
        )
    await waiting


async def test_an_address_is_in_its_session_until_it_moves(world: World) -> None:
    async with world.database.transaction() as tx:
        assert await sessions.current(tx, HOME) == world.session
        assert await sessions.current(tx, Address("fake", "bot", "nobody")) is None


class TestDigests:
    async def by_digest(self, world: World, value: str) -> Address | None:
        async with world.database.connection() as conn:
            return await sessions.by_digest(conn, world.principal, "key", value)

    async def api(self, world: World, chat: str, value: str) -> SessionId:
        async with world.database.transaction() as tx:
            session = await sessions.start(tx, world.principal, Label.OWNER)
            await addresses.add(tx, Address("api", "key", chat), world.principal, session, private=True)
            await sessions.set_digest(tx, session, value)
            assert await sessions.digest(tx, session) == value
        return session

    async def test_the_latest_open_api_session_with_that_conversation_is_found(self, world: World) -> None:
        await self.api(world, "1", "abc")
        await self.api(world, "2", "abc")
        assert await self.by_digest(world, "abc") == Address("api", "key", "2")
        assert await self.by_digest(world, "abcd") is None

    async def test_one_that_ended_or_still_answers_is_not(self, world: World) -> None:
        ended, busy = await self.api(world, "1", "abc"), await self.api(world, "2", "abc")
        async with world.database.transaction() as tx:
            await sessions.end(tx, ended)
        await world.do(
            SAID,
            busy,
            world.principal,
        )
        assert await self.by_digest(world, "abc") is None


async def test_sessions_are_listed_by_when_they_were_last_spoken_in(world: World) -> None:
    async with world.database.transaction() as tx:
        quiet = await sessions.start(tx, world.principal, Label.OWNER)
        await tx.execute("update sessions set started_at = now() - interval '1 day' where id = $1", quiet)
    await world.ask("hello")
    await world.answer("hi")
    async with world.database.connection() as conn:
        listed = await sessions.recent(conn, 10)
        assert await sessions.recent(conn, 0) == []
    assert [(s.id, s.channel, s.chat, s.messages) for s in listed] == [
        (world.session, "fake", "1", 2),
        (quiet, None, None, 0),
    ]


async def test_an_ended_session_is_listed_under_the_chat_it_was_held_in(world: World) -> None:
    await world.ask("hello")
    async with world.database.transaction() as tx:
        await sessions.end(tx, world.session)
        await addresses.move(tx, world.session, await sessions.start(tx, world.principal, Label.OWNER))
    async with world.database.connection() as conn:
        by_id = {s.id: s for s in await sessions.recent(conn, 10)}
    assert (by_id[world.session].chat, by_id[world.session].ended_at is None) == ("1", False)
    assert SessionId(uuid4()) not in by_id


async def test_what_one_turn_says_may_carry_the_highest_label_at_work(world: World) -> None:
    async with world.database.transaction() as tx:
        elsewhere = await sessions.start(tx, world.principal, Label.UNTRUSTED)
        await tasks.create_chat(tx, world.principal, world.session, InstanceId(uuid4()))
        assert await sessions.label_at_work(tx, world.principal) == Label.OWNER
        await tasks.create_chat(tx, world.principal, elsewhere, InstanceId(uuid4()))
        assert await sessions.label_at_work(tx, world.principal) == Label.OWNER
        await tx.execute("update tasks set status = 'running' where session_id = $1", elsewhere)
        assert await sessions.label_at_work(tx, world.principal) == Label.UNTRUSTED


async def test_a_tasks_own_session_ends_unless_others_go_on_with_it(world: World) -> None:
    async with world.database.transaction() as tx:
        own = await sessions.start(tx, world.principal, Label.OWNER)
        named = await triggers.conversation(tx, world.principal, "ci/main", Label.UNTRUSTED)
        assert [await sessions.end_unnamed(tx, session) for session in (own, named)] == [True, False]
    ended = await world.column("select id from sessions where ended_at is not null")
    assert ended == [own]

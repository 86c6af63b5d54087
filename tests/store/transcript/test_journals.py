from datetime import datetime, timedelta
from uuid import UUID, uuid4

from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.transcript import AssistantText, Notice
from gateway.domain.ids import JournalId, SessionId
from gateway.domain.principals import Label
from gateway.store.transcript import journals, messages, sessions
from gateway.store.transcript.journals import CopyMark, JournalRow
from tests.store.world import HOME, World

PATH = "sessions/2026-03-01/12-30-15.md"
FIRST = SessionId(UUID(int=0))


async def opened(world: World, path: str = PATH) -> JournalRow:
    async with world.database.transaction() as tx:
        row = await journals.begin(tx, world.session, world.principal, path)
    assert row is not None
    return row


async def closed(world: World, summary: str = "about this") -> bool:
    async with world.database.transaction() as tx:
        return await journals.close(tx, world.session, summary)


async def lines(world: World, journal: JournalId, after: CopyMark | None = None) -> list[tuple[str, str]]:
    async with world.database.connection() as conn:
        return [(line.kind, line.text) for line in await journals.lines(conn, journal, after or CopyMark())]


class TestOpening:
    async def test_rows_without_a_file_go_into_the_first_one(self, world: World) -> None:
        await world.ask("one")
        journal = await opened(world)
        await world.ask("two")
        assert await lines(world, journal.id) == [("user", "one"), ("user", "two")]

    async def test_a_session_has_one_open_file(self, world: World) -> None:
        first = await opened(world)
        async with world.database.transaction() as tx:
            assert await journals.begin(tx, world.session, world.principal, "sessions/x.md") is None
            assert await journals.open_for(tx, world.session) == first
            assert await journals.all_open(tx, FIRST, 9) == [first]

    async def test_a_path_is_taken_once(self, world: World) -> None:
        await opened(world)
        async with world.database.transaction() as tx:
            other = await sessions.start(tx, world.principal, Label.OWNER)
            assert await journals.begin(tx, other, world.principal, PATH) is None
            found = await journals.at_path(tx, world.principal, PATH)
            assert found is not None
            assert found.session_id == world.session
            assert await journals.at_path(tx, world.principal, "sessions/x.md") is None

    async def test_open_ones_come_by_session_so_many_at_a_time(self, world: World) -> None:
        opened_ones = [await opened(world)]
        async with world.database.transaction() as tx:
            for number in range(2):
                other = await sessions.start(tx, world.principal, Label.OWNER)
                journal = await journals.begin(tx, other, world.principal, f"sessions/{number}.md")
                assert journal is not None
                opened_ones.append(journal)
        in_order = sorted(opened_ones, key=lambda journal: journal.session_id)
        async with world.database.connection() as conn:
            assert await journals.all_open(conn, FIRST, 2) == in_order[:2]
            assert await journals.all_open(conn, in_order[1].session_id, 2) == in_order[2:]

    async def test_those_with_rows_after_a_mark_are_told(self, world: World) -> None:
        journal = await opened(world)
        async with world.database.connection() as conn:
            before = await journals.newest(conn)
            assert await journals.with_rows_after(conn, before) == []
        await world.ask("one")
        async with world.database.connection() as conn:
            assert await journals.with_rows_after(conn, before) == [journal]
            assert await journals.with_rows_after(conn, await journals.newest(conn)) == []


class TestWhereItGoes:
    async def test_an_address_tells_whose_it_is_and_the_file(self, world: World) -> None:
        async with world.database.connection() as conn:
            assert await journals.current(conn, HOME) == (world.principal, None)
        await opened(world)
        async with world.database.connection() as conn:
            assert await journals.current(conn, HOME) == (world.principal, PATH)
        await closed(world)
        async with world.database.connection() as conn:
            assert await journals.current(conn, HOME) == (world.principal, None)

    async def test_where_nothing_was_said_there_is_none(self, world: World) -> None:
        async with world.database.connection() as conn:
            assert await journals.current(conn, Address("fake", "bot", "nowhere")) is None


class TestClosing:
    async def test_it_is_closed_once_with_what_it_was_about(self, world: World) -> None:
        assert not await closed(world)
        journal = await opened(world)
        assert await closed(world, "first")
        assert not await closed(world, "second")
        assert await world.value("select summary from journals") == "first"
        async with world.database.connection() as conn:
            assert await journals.open_for(conn, world.session) is None
            assert await journals.all_open(conn, FIRST, 9) == []
            assert [row.id for row in await journals.unfiled(conn, 10)] == [journal.id]

    async def test_what_comes_after_goes_into_another(self, world: World) -> None:
        first = await opened(world)
        await world.ask("one")
        await closed(world)
        await world.ask("two")
        second = await opened(world, "sessions/x.md")
        assert await lines(world, first.id) == [("user", "one")]
        assert await lines(world, second.id) == [("user", "two")]

    async def test_the_outline_is_of_the_open_stretch(self, world: World) -> None:
        await opened(world)
        await world.ask("old")
        await closed(world)
        await world.ask("what?")
        await opened(world, "sessions/x.md")
        await world.answer("that")
        await world.ask("and?")
        await world.answer("this")
        async with world.database.connection() as conn:
            assert await journals.outline(conn, world.session) == ("what?", "this", 4)

    async def test_the_outline_counts_what_was_said_and_cuts_it(self, world: World) -> None:
        async with world.database.transaction() as tx:
            assert await journals.outline(tx, world.session) == ("", "", 0)
            for entry in (Notice("hello"), AssistantText("let me look", final=False), AssistantText("a" * 1000)):
                await messages.say(tx, world.session, world.principal, entry, label=Label.OWNER)
            assert await journals.outline(tx, world.session) == ("", "a" * 400, 1)

    async def test_filed_ones_and_the_one_to_file_are_listed_with_their_channel(self, world: World) -> None:
        await opened(world, "sessions/2026-03-01/00-00-00.md")
        await world.ask("hello")
        await closed(world, "talk")
        async with world.database.connection() as conn:
            [first] = await journals.unfiled(conn, 10)
            assert [row.path for row in await journals.listed(conn, first)] == [first.path]
            await journals.file_away(conn, first.id, "memory/20260301000000.md")
            assert await journals.unfiled(conn, 10) == []
        await opened(world)
        await closed(world, "nothing")
        await opened(world, "sessions/x.md")
        async with world.database.connection() as conn:
            [second] = await journals.unfiled(conn, 10)
            rows = await journals.listed(conn, second)
        assert {(row.path, row.channel, row.summary) for row in rows} == {
            ("memory/20260301000000.md", "fake", "talk"),
            (PATH, "", "nothing"),
        }


class TestUnopened:
    async def test_sessions_with_rows_and_no_file(self, world: World) -> None:
        async with world.database.connection() as conn:
            assert await journals.unopened(conn, 10) == []
            assert await journals.unopened(conn, 1, world.session) == []
        await world.ask("hello")
        async with world.database.connection() as conn:
            [left] = await journals.unopened(conn, 10)
            assert await journals.unopened(conn, 1, world.session) == [left]
            assert await journals.unopened(conn, 1, SessionId(uuid4())) == []
        assert (left.session_id, left.principal_id, left.ended) == (world.session, world.principal, False)
        since: datetime = await world.value("select created_at from messages")
        assert abs(left.since - since) < timedelta(microseconds=1)
        await opened(world)
        async with world.database.connection() as conn:
            assert await journals.unopened(conn, 10) == []

    async def test_it_says_whether_the_session_is_over(self, world: World) -> None:
        await world.ask("hello")
        async with world.database.transaction() as tx:
            await sessions.end(tx, world.session)
            [left] = await journals.unopened(tx, 10)
        assert left.ended

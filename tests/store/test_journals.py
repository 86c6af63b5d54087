from datetime import datetime, timedelta

from gateway.domain.ids import JournalId
from gateway.domain.inbound import Address
from gateway.domain.principals import Label
from gateway.domain.transcript import AssistantText, Notice
from gateway.store import entries, journals, messages, sessions
from gateway.store.entries import Mark
from gateway.store.journals import JournalRow, Said
from tests.store.world import HOME, World

PATH = "sessions/2026-03-01/12-30-15.md"


async def opened(world: World, path: str = PATH) -> JournalRow:
    async with world.database.transaction() as tx:
        row = await journals.begin(tx, world.session, world.principal, path)
    assert row is not None
    return row


async def closed(world: World, summary: str = "about this") -> bool:
    async with world.database.transaction() as tx:
        return await journals.close(tx, world.session, summary)


async def lines(world: World, journal: JournalId, after: Mark | None = None) -> list[tuple[str, str]]:
    async with world.database.connection() as conn:
        return [(line.kind, line.text) for line in await entries.lines(conn, journal, after or Mark())]


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
            assert await journals.all_open(tx) == [first]

    async def test_a_path_is_taken_once(self, world: World) -> None:
        await opened(world)
        async with world.database.transaction() as tx:
            other = await sessions.start(tx, world.principal, Label.OWNER)
            assert await journals.begin(tx, other, world.principal, PATH) is None
            assert await journals.taken(tx, world.principal, PATH)
            assert not await journals.taken(tx, world.principal, "sessions/x.md")


class TestWhereItGoes:
    async def test_an_address_tells_its_session_and_file(self, world: World) -> None:
        async with world.database.connection() as conn:
            before = await journals.current(conn, HOME)
            assert before is not None
            assert (before.principal_id, before.session_id, before.path) == (world.principal, world.session, None)
        await opened(world)
        async with world.database.connection() as conn:
            after = await journals.current(conn, HOME)
            assert after is not None
            assert after.path == PATH
        await closed(world)
        async with world.database.connection() as conn:
            assert await journals.current(conn, HOME) == before

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
            assert await journals.all_open(conn) == []
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
            assert await journals.outline(conn, world.session) == Said("what?", "this", 4)

    async def test_the_outline_counts_what_was_said_and_cuts_it(self, world: World) -> None:
        async with world.database.transaction() as tx:
            assert await journals.outline(tx, world.session) == Said("", "", 0)
            for entry in (Notice("hello"), AssistantText("let me look", final=False), AssistantText("a" * 1000)):
                await messages.say(tx, world.session, world.principal, entry, label=Label.OWNER)
            assert await journals.outline(tx, world.session) == Said("", "a" * 400, 1)

    async def test_filed_ones_are_listed_the_newest_first_with_their_channel(self, world: World) -> None:
        for day in ("01", "02"):
            journal = await opened(world, f"sessions/2026-03-{day}/00-00-00.md")
            async with world.database.connection() as conn:
                assert await journals.channel_of(conn, journal.id) == ""
            await world.ask("hello")
            await closed(world, f"on {day}")
            async with world.database.connection() as conn:
                assert await journals.channel_of(conn, journal.id) == "fake"
                await journals.file_away(conn, journal.id, f"memory/202603{day}000000.md")
        await opened(world)
        async with world.database.connection() as conn:
            assert await journals.unfiled(conn, 10) == []
            filed = await journals.of_principal(conn, world.principal)
        assert [(row.path, row.channel, row.summary) for row in filed] == [
            ("memory/20260302000000.md", "fake", "on 02"),
            ("memory/20260301000000.md", "fake", "on 01"),
        ]


class TestUnopened:
    async def test_sessions_with_rows_and_no_file(self, world: World) -> None:
        async with world.database.connection() as conn:
            assert await journals.unopened(conn, 10) == []
            assert await journals.unopened_in(conn, world.session) is None
        await world.ask("hello")
        async with world.database.connection() as conn:
            [left] = await journals.unopened(conn, 10)
            assert await journals.unopened_in(conn, world.session) == left
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

    async def test_a_file_is_known_by_its_path_and_principal(self, world: World) -> None:
        await opened(world)
        async with world.database.connection() as conn:
            found = await journals.registered(conn, world.principal, [PATH, "sessions/x.md"])
        assert found == {PATH: world.session}

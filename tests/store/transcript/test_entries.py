from datetime import UTC, datetime

import pytest

from gateway.domain.conversation.inbound import Arrival
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.transcript import ToolIntent, ToolResult
from gateway.domain.ids import EntryId, JournalId
from gateway.domain.principals import Label
from gateway.store.delivery import addresses, inbox
from gateway.store.transcript import journals, tool_calls
from gateway.store.transcript.journals import CopyMark
from tests.store.world import HOME, World, arrival, fresh


async def opened(world: World, *arrived: EntryId) -> JournalId:
    async with world.database.transaction() as tx:
        row = await journals.begin(tx, world.session, world.principal, "sessions/2026-03-01/12-30-15.md", arrived)
    assert row is not None
    return row.id


async def lines(world: World, journal: JournalId, after: CopyMark | None = None) -> list[tuple[str, str]]:
    async with world.database.connection() as conn:
        return [(line.kind, line.text) for line in await journals.lines(conn, journal, after or CopyMark())]


async def enter(world: World, text: str, kind: inbox.Kind, entry: EntryId, id: str) -> None:
    async with world.database.transaction() as tx:
        at = await addresses.lock(tx, HOME)
        assert at is not None
        await inbox.enter(tx, arrival(text, id=id), kind, at, entry, handled=True)


def arrived(entry: EntryId, id: str) -> Arrival:
    return Arrival(entry, arrival(id=id), datetime.now(UTC))


class TestAdopting:
    async def test_commands_that_came_before_the_file_are_taken_in(self, world: World) -> None:
        command, message = fresh(), fresh()
        await enter(world, "/ping", "command", command, "m1")
        await enter(world, "", "message", message, "m2")
        journal = await opened(world, command, message)
        assert await lines(world, journal) == [("command", "/ping")]
        assert await world.value("select journal_id from inbox where entry_id = $1", message) is None


class TestLines:
    async def test_messages_commands_and_edits_come_as_they_happened(self, world: World) -> None:
        journal = await opened(world)
        await world.ask("one")
        await enter(world, "/ping", "command", fresh(), "m1")
        await world.answer("re: one")
        await enter(world, "uno", "edit", fresh(), "m2")
        await enter(world, "", "message", fresh(), "m3")
        expected = [("user", "one"), ("command", "/ping"), ("assistant", "re: one"), ("edit", "uno")]
        assert await lines(world, journal) == expected

    async def test_only_what_is_after_the_mark(self, world: World) -> None:
        journal = await opened(world)
        await world.ask("one")
        await enter(world, "/ping", "command", fresh(), "m1")
        async with world.database.connection() as conn:
            first, second = await journals.lines(conn, journal, CopyMark())
        await world.ask("two")
        assert (first.arrived, second.arrived) == (False, True)
        assert await lines(world, journal, CopyMark(first.id, second.id)) == [("user", "two")]

    async def test_rows_never_change_places_though_a_clock_goes_back(self, world: World) -> None:
        journal = await opened(world)
        for text in ("one", "two", "three"):
            await world.ask(text)
        async with world.database.connection() as conn:
            await conn.execute("update messages set created_at = created_at - interval '1 hour' where text = 'three'")
        assert [text for _, text in await lines(world, journal)] == ["one", "two", "three"]

    async def test_tool_rows_are_cut_and_say_how_long_they_are(self, world: World) -> None:
        journal = await opened(world)
        task = await world.queue()
        intent = ToolIntent(ToolCall("c", "look", "a" * 5000), 0)
        async with world.database.transaction() as tx:
            await tool_calls.intend(tx, world.session, world.principal, task, [intent], Label.OWNER)
            result = ToolResult("c", "short")
            await tool_calls.conclude(tx, world.session, world.principal, task, intent, result, Label.OWNER)
            found = await journals.lines(tx, journal, CopyMark())
        assert [(line.who, len(line.text), line.length) for line in found] == [
            ("look", journals.MAX_COPIED, 5000),
            ("look", 5, 5),
        ]


class TestKnown:
    @pytest.mark.parametrize("same", ["id", "key"])
    async def test_an_arrival_is_known_by_its_id_and_by_its_key(self, world: World, same: str) -> None:
        entry = fresh()
        await enter(world, "", "message", entry, "m1")
        asked = arrived(entry, "other") if same == "id" else arrived(fresh(), "m1")
        async with world.database.connection() as conn:
            assert await journals.known_arrivals(conn, [asked, arrived(fresh(), "m2")]) == {asked.id}

    async def test_nothing_asked_nothing_known(self, world: World) -> None:
        async with world.database.connection() as conn:
            assert await journals.known_arrivals(conn, []) == set()

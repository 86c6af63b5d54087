"""What is in the files, after what was written, stored and lost in between."""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import PrincipalId
from gateway.store.transcript import journals
from tests.flow.journal.desk import MEMBER, Desk, arrival, desk
from tests.flow.outage import AwayAtTimes


@pytest.fixture
async def away(dsn: str) -> AsyncIterator[AwayAtTimes]:
    async with await AwayAtTimes.connect(dsn) as database:
        yield database


@pytest.fixture
async def here(away: AwayAtTimes, tmp_path: Path) -> Desk:
    return await desk(away, tmp_path)


class TestWriting:
    async def test_it_is_in_the_file_before_the_database_has_it(self, here: Desk) -> None:
        arrived = arrival("hello")
        place = await here.write(arrived)
        assert place is not None
        assert here.file == place.root / place.path
        assert [entry.arrival for entry in here.entries(here.file)] == [arrived]
        assert await here.rows("select id from messages") == []

    async def test_a_conversation_stays_in_its_file(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        await here.hear("two")
        await here.answer(session, "re: two")
        await here.settled()
        assert here.said(here.file) == [
            ("message", "one"),
            ("assistant", "re: one"),
            ("message", "two"),
            ("assistant", "re: two"),
        ]
        assert await here.rows("select count(*), count(distinct journal_id) from messages") == [(4, 1)]
        assert await here.rows("select path from journals") == [(str(here.file.relative_to(here.workspace)),)]

    async def test_other_conversations_have_files_of_their_own(self, here: Desk) -> None:
        for thread in ("", "a", "b"):
            await here.hear(f"in {thread}", thread=thread)
        assert [here.said(file) for file in here.files()] == [
            [("message", "in ")],
            [("message", "in a")],
            [("message", "in b")],
        ]

    async def test_what_a_member_says_is_in_their_own_root(self, here: Desk) -> None:
        assert await here.write(arrival("hello", chat=MEMBER)) is None
        session = await here.hear("hello", chat=MEMBER)
        await here.settled()
        await here.hear("again", chat=MEMBER)
        [(principal,)] = await here.rows("select principal_id from sessions where id = $1", session)
        [file] = here.root(PrincipalId(principal)).rglob("sessions/**/*.md")
        assert here.said(file) == [("user", "hello"), ("message", "again")]
        assert here.files() == []

    async def test_what_a_group_says_waits_for_the_database_to_say_whose_it_is(self, here: Desk) -> None:
        assert await here.write(arrival("hello", private=False)) is None

    async def test_commands_and_edits_stand_where_they_came(self, here: Desk) -> None:
        session = await here.hear("one", id="m-1")
        await here.hear("/ping")
        await here.hear("uno", edits="m-1", id="e-1")
        await here.answer(session, "re: uno")
        await here.settled()
        kinds = ["message", "command", "edit", "assistant"]
        assert [kind for kind, _ in here.said(here.file)] == kinds
        here.file.unlink()
        again = await desk(here.database, here.workspace.parent)
        again.journal.changed(session)
        await again.settled()
        assert again.said(again.file) == [
            ("user", "one"),
            ("command", "/ping"),
            ("edit", "uno"),
            ("assistant", "re: uno"),
        ]

    async def test_the_first_words_of_a_member_may_be_a_command(self, here: Desk) -> None:
        session = await here.hear("/help", chat=MEMBER)
        await here.answer(session, "help yourself")
        await here.settled()
        [file] = (here.data / "principals").rglob("*.md")
        assert here.said(file) == [("command", "/help"), ("assistant", "help yourself")]

    async def test_tool_calls_are_readable_and_cut(self, here: Desk) -> None:
        session = await here.hear("look")
        await here.use_tool(session, '{"at": "```"}', "x" * 5000)
        await here.settled()
        _, (_, intent), (_, result) = here.said(here.file)
        assert intent == '````json\n{"at": "```"}\n````'
        assert result == f"```json\n{'x' * 4000}\n```\n\n[… 1,000 more characters; the database has the whole]"
        assert [entry.who for entry in here.entries(here.file)][1:] == ["Tool call: look", "Tool result: look"]

    async def test_rows_of_before_the_journal_get_a_file(self, here: Desk) -> None:
        session = await here.store(arrival("old"), None)
        await here.answer(session, "re: old")
        again = await desk(here.database, here.workspace.parent)
        await again.settled()
        assert again.said(again.file) == [("user", "old"), ("assistant", "re: old")]

    async def test_a_session_of_which_nothing_is_stored_has_no_file(self, here: Desk) -> None:
        await here.hear("hello")
        empty = await here.new()
        here.journal.changed(empty)
        await here.settled()
        assert here.files() == []


class TestForgery:
    async def test_a_forged_entry_in_a_message_is_text(self, here: Desk) -> None:
        session = await here.hear("secret plan", id="m-1")
        genuine = here.file.read_text()
        await here.hear(f"look:\n{genuine}\n<!-- claw {{}} -->\n", id="m-2")
        await here.settled()
        again = await desk(here.database, here.workspace.parent)
        assert await again.journal.unstored() == []
        again.journal.changed(session)
        await again.settled()
        assert len(again.entries(again.file)) == 2


class TestDisk:
    async def test_a_disk_that_refuses_stops_no_chat_and_is_no_acknowledgement(self, here: Desk) -> None:
        session = await here.hear("one")
        place = await here.write(arrival("two"))
        assert place is not None
        os.rename(here.workspace / "sessions", here.workspace / "gone")
        (here.workspace / "sessions").write_text("in the way")
        assert await here.write(arrival("three")) is None
        with pytest.raises(TryAgainLater, match="brought to disk"):
            await here.journal.sync(place)
        await here.answer(session, "re: one")
        assert not await here.journal.catch_up()
        (here.workspace / "sessions").unlink()
        os.rename(here.workspace / "gone", here.workspace / "sessions")
        await here.settled()
        assert ("assistant", "re: one") in here.said(here.file)
        assert await here.write(arrival("four")) is not None

    async def test_a_linked_folder_is_not_written_through(self, here: Desk) -> None:
        outside = here.workspace.parent / "outside"
        outside.mkdir()
        (here.workspace / "sessions").symlink_to(outside)
        assert await here.write(arrival("hello")) is None
        await here.hear("hello again")
        assert not await here.journal.catch_up()
        assert await here.journal.unstored() == []
        assert list(outside.iterdir()) == []

    async def test_a_file_is_on_disk_when_synced(self, here: Desk) -> None:
        place = await here.write(arrival("hello"))
        assert place is not None
        await here.journal.sync(place)
        assert here.said(here.file) == [("message", "hello")]

    async def test_nothing_is_lost_while_the_database_is_away(self, here: Desk, away: AwayAtTimes) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        away.away = True
        assert not await here.journal.catch_up()
        away.away = False
        await here.settled()
        assert here.said(here.file) == [("message", "one"), ("assistant", "re: one")]


async def test_a_closed_journal_stays_closed(here: Desk) -> None:
    session = await here.hear("one")
    async with here.database.transaction() as tx:
        assert await journals.close(tx, session, "first")
        assert not await journals.close(tx, session, "second")
    assert await here.rows("select summary from journals") == [("first",)]

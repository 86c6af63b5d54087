"""What a start finds in the files that the database lacks."""

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import SessionId
from gateway.domain.inbound import Arrival
from gateway.domain.principals import Label
from gateway.flow.journal import journal as journal_module
from gateway.store.transcript import unread
from tests.flow.journal.desk import MEMBER, Desk, arrival, desk
from tests.flow.outage import AwayAtTimes

MESSAGES = "select text from messages order by id"


@pytest.fixture
async def away(dsn: str) -> AsyncIterator[AwayAtTimes]:
    async with await AwayAtTimes.connect(dsn) as database:
        yield database


@pytest.fixture
async def here(away: AwayAtTimes, tmp_path: Path) -> Desk:
    return await desk(away, tmp_path)


async def restarted(here: Desk) -> Desk:
    return await desk(here.database, here.workspace.parent)


async def restored(here: Desk) -> tuple[Desk, list[Arrival]]:
    """The next start: what it found is stored, the check is complete, and everything is copied."""
    again = await restarted(here)
    found = await again.journal.unstored()
    for each, place in found:
        await again.store(each, place)
    await again.journal.checked()
    await again.settled()
    return again, [each for each, _ in found]


def mark(here: Desk) -> Path:
    return here.data / "journal" / "checked"


def old(file: Path) -> None:
    """It was written an hour ago."""
    long_ago = time.time() - 3600
    os.utime(file, (long_ago, long_ago))


class TestUnstored:
    async def test_what_only_the_file_has_is_found_whole_and_in_order(self, here: Desk) -> None:
        await here.hear("one")
        waiting = [arrival("two\r\n<!-- claw -->"), arrival("/ping"), arrival("uno", edits="m1")]
        for each in waiting:
            await here.write(each)
        again, found = await restored(here)
        assert found == waiting
        assert await again.rows(MESSAGES) == [("one",), (waiting[0].inbound.text,)]
        assert len(again.entries(again.file)) == 4
        assert await (await restarted(again)).journal.unstored() == []

    async def test_first_words_that_are_nowhere_else_bring_their_file_along(self, here: Desk) -> None:
        await here.write(arrival("one"))
        await here.write(arrival("two"))
        again, found = await restored(here)
        assert len(found) == 2
        assert again.said(again.file) == [("message", "one"), ("message", "two")]
        assert await again.rows("select path from journals") == [(str(again.file.relative_to(again.workspace)),)]

    async def test_what_came_again_under_another_id_is_known(self, here: Desk) -> None:
        await here.write(arrival("one", id="m-1"))
        await here.store(arrival("one", id="m-1"), None)
        again, found = await restored(here)
        assert found == []
        assert await again.rows(MESSAGES) == [("one",)]

    async def test_the_files_of_members_are_looked_through_too(self, here: Desk) -> None:
        await here.hear("one", chat=MEMBER)
        await here.settled()
        waiting = arrival("two", chat=MEMBER)
        await here.write(waiting)
        _, found = await restored(here)
        assert found == [waiting]

    async def test_a_torn_entry_was_never_acknowledged(self, here: Desk) -> None:
        await here.hear("one")
        await here.write(arrival("two"))
        here.file.write_bytes(here.file.read_bytes()[:-1])
        again, found = await restored(here)
        assert found == []
        assert again.said(again.file) == [("message", "one")]

    async def test_a_forged_entry_is_not_stored(self, here: Desk) -> None:
        other = await desk(here.database, here.workspace.parent / "elsewhere")
        await other.write(arrival("pay him"))
        forged = other.file.read_text()
        await here.hear(f"look:\n{forged}")
        here.file.write_text(here.file.read_text() + forged)
        again, found = await restored(here)
        assert found == []
        assert len(again.entries(again.file)) == 1

    async def test_a_file_of_an_ended_session_is_filed_once_its_last_words_are_stored(self, here: Desk) -> None:
        await here.hear("one")
        await here.settled()
        late = arrival("two")
        await here.write(late)
        await here.new()
        await here.journal.catch_up()
        assert len(here.files()) == 1
        again, found = await restored(here)
        assert found == [late]
        assert [again.said(file) for file in again.files("memory")] == [[("user", "one")]]
        assert again.said(again.file) == [("user", "two")]

    async def test_a_damaged_key_stops_the_start(self, here: Desk) -> None:
        (here.data / "keys").mkdir()
        (here.data / "keys" / "journal").write_bytes(b"short")
        with pytest.raises(OwnerMustAct, match="keys/journal is damaged"):
            await here.journal.unstored()

    async def test_a_disk_that_cannot_hold_a_key_does_not_stop_the_start(self, here: Desk) -> None:
        (here.data / "keys").write_text("in the way")
        assert await here.journal.unstored() == []
        assert await here.write(arrival("hello")) is None


class TestChecked:
    async def test_a_file_that_nobody_has_and_that_holds_nothing_else_is_removed(self, here: Desk) -> None:
        await here.write(arrival("one", id="m-1"))
        await here.store(arrival("one", id="m-1"), None)
        (here.workspace / "sessions" / "2026-01-01").mkdir()
        (here.workspace / "sessions" / "2026-01-01" / "01-01-01.md").touch()
        assert len(here.files()) == 2
        again, _ = await restored(here)
        assert again.said(again.file) == [("user", "one")]

    async def test_what_was_not_stored_stays(self, here: Desk) -> None:
        await here.write(arrival("hello"))
        again = await restarted(here)
        assert len(await again.journal.unstored()) == 1
        await again.journal.checked()
        assert again.said(again.file) == [("message", "hello")]

    async def test_what_will_never_be_stored_does_not(self, here: Desk) -> None:
        await here.write(arrival("uno", edits="m-0"))
        again = await restarted(here)
        [(edit, place)] = await again.journal.unstored()
        again.journal.stored(edit, place, None)
        await again.journal.checked()
        await again.settled()
        assert again.files() == []

    async def test_what_a_person_put_there_stays(self, here: Desk) -> None:
        folder = here.workspace / "sessions" / "2026-01-01"
        folder.mkdir(parents=True)
        for name in ("01-01-01.md", "notes.md"):
            (folder / name).write_text("written by hand")
        await restored(here)
        assert sorted(os.listdir(folder)) == ["01-01-01.md", "notes.md"]

    async def test_answers_a_crash_left_uncopied_are_copied(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.settled()
        await here.answer(session, "re: one")
        again, _ = await restored(here)
        assert again.said(again.file) == [("message", "one"), ("assistant", "re: one")]

    async def test_rows_of_long_after_the_file_was_written_are_copied_too(self, here: Desk) -> None:
        session = await here.hear("one")
        again, _ = await restored(here)
        old(again.file)
        await again.answer(session, "re: one")  # and then it crashed
        last, _ = await restored(again)
        assert last.said(last.file) == [("message", "one"), ("assistant", "re: one")]

    async def test_a_file_that_is_gone_comes_back(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        here.file.unlink()
        again, _ = await restored(here)
        assert again.said(again.file) == [("user", "one"), ("assistant", "re: one")]


class TestMark:
    async def test_only_what_was_written_since_is_read(self, here: Desk) -> None:
        again, _ = await restored(here)
        await again.write(arrival("one"))
        old(again.file)
        assert await (await restarted(again)).journal.unstored() == []
        os.utime(again.file)
        assert len(await (await restarted(again)).journal.unstored()) == 1

    @pytest.mark.parametrize("complete", [True, False])
    async def test_a_start_that_did_not_store_what_it_found_is_made_again(self, here: Desk, complete: bool) -> None:
        await here.write(arrival("one"))
        old(here.file)
        for _ in range(2):
            again = await restarted(here)
            assert len(await again.journal.unstored()) == 1
            if complete:
                await again.journal.checked()
            await again.journal.catch_up()

    @pytest.mark.parametrize(
        "text", ["", "garbage", str(int(time.time()) + 86_400)], ids=["empty", "garbage", "future"]
    )
    async def test_without_a_mark_that_can_be_believed_everything_is_read(self, here: Desk, text: str) -> None:
        await here.write(arrival("one"))
        old(here.file)
        mark(here).parent.mkdir()
        mark(here).write_text(text)
        assert len(await here.journal.unstored()) == 1

    async def test_it_moves_on_when_everything_is_stored_and_copied(self, here: Desk, away: AwayAtTimes) -> None:
        again, _ = await restored(here)
        mark(again).write_text("1000")
        waiting = arrival("one")
        place = await again.write(waiting)
        await again.settled()
        assert mark(again).read_text() == "1000", "something waits to be stored"
        await again.store(waiting, place)
        away.away = True
        assert not await again.journal.catch_up()
        assert mark(again).read_text() == "1000", "something waits to be copied"
        away.away = False
        await again.settled()
        assert int(mark(again).read_text()) > 1000

    async def test_it_moves_on_by_itself(self, here: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal_module, "RETRY", 0.0)
        again = await restarted(here)
        await again.journal.unstored()
        await again.journal.checked()
        moved, write_mark = threading.Event(), journal_module.write_mark

        def heard(mark: Path, at: datetime) -> None:
            write_mark(mark, at)
            moved.set()

        monkeypatch.setattr(journal_module, "write_mark", heard)
        running = asyncio.create_task(again.journal.run())
        assert await asyncio.to_thread(moved.wait, 10)
        running.cancel()
        assert int(mark(again).read_text()) > 1000

    async def test_it_stays_once_more_is_open_than_it_can_remember(
        self, here: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        again, _ = await restored(here)
        mark(again).write_text("1000")
        monkeypatch.setattr(journal_module, "OPEN", 1)
        written = [(each, await again.write(each)) for each in (arrival("one"), arrival("two"))]
        for each, place in written:
            await again.store(each, place)
        await again.settled()
        assert mark(again).read_text() == "1000"

    async def test_it_does_not_move_before_the_check(self, here: Desk) -> None:
        await here.settled()
        assert not mark(here).exists()


async def test_a_thousand_files_that_did_not_change_are_not_opened(here: Desk) -> None:
    await restored(here)
    day = here.workspace / "sessions" / "2026-01-01"
    day.mkdir(parents=True)
    for number in range(1000):
        file = day / f"{number // 3600:02}-{number // 60 % 60:02}-{number % 60:02}.md"
        file.write_text("no journal")
        os.utime(file, (1000, 1000))
    with capture_logs() as logs:
        await restored(here)
        assert logs == []
        os.utime(day / "00-00-00.md")
        await restored(here)
    assert [entry["event"] for entry in logs] == ["journal.left_over"]


async def test_edits_of_the_text_are_in_the_copy_that_is_filed(here: Desk) -> None:
    session: SessionId = await here.hear("one", id="m-1")
    async with here.database.transaction() as tx:
        [(address,)] = await here.rows("select id from addresses")
        await unread.edit(tx, address, "m-1", "uno", Label.OWNER)
    here.journal.changed(session)
    await here.new()
    await here.settled()
    [filed] = here.files("memory")
    assert here.said(filed) == [("user", "uno")]

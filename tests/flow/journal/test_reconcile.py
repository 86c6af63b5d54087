"""What a start finds in the files that the database lacks."""

import os
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import SessionId
from gateway.domain.inbound import Arrival
from gateway.flow.journal import reconcile as reconcile_module
from gateway.store import messages
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


async def mark(here: Desk) -> datetime:
    return datetime.fromisoformat((here.data / "journal" / "checked").read_text().strip())


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

    async def test_an_edit_of_something_unknown_does_not(self, here: Desk) -> None:
        await here.write(arrival("uno", edits="m-0"))
        again = await restarted(here)
        assert len(await again.journal.unstored()) == 1
        await again.journal.checked()
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

    async def test_a_file_that_is_gone_comes_back(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        here.file.unlink()
        again, _ = await restored(here)
        assert again.said(again.file) == [("user", "one"), ("assistant", "re: one")]


class TestMark:
    async def test_only_what_was_written_since_is_read(self, here: Desk) -> None:
        await here.write(arrival("old"))
        again = await restarted(here)
        await again.journal.unstored()
        await again.journal.checked()
        long_ago = time.time() - 3600
        os.utime(again.file, (long_ago, long_ago))
        assert await (await restarted(again)).journal.unstored() == []
        os.utime(again.file)
        assert len(await (await restarted(again)).journal.unstored()) == 1

    async def test_a_check_that_was_not_completed_is_made_again(self, here: Desk) -> None:
        await here.write(arrival("old"))
        long_ago = time.time() - 3600
        os.utime(here.file, (long_ago, long_ago))
        for _ in range(2):
            assert len(await (await restarted(here)).journal.unstored()) == 1

    @pytest.mark.parametrize("text", ["", "garbage", "ahead"])
    async def test_without_a_mark_that_can_be_believed_everything_is_read(self, here: Desk, text: str) -> None:
        await here.write(arrival("old"))
        os.utime(here.file, (1000, 1000))
        (here.data / "journal").mkdir()
        ahead = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        (here.data / "journal" / "checked").write_text(ahead if text == "ahead" else text)
        assert len(await here.journal.unstored()) == 1

    async def test_it_moves_on_while_everything_is_stored(self, here: Desk) -> None:
        again, _ = await restored(here)
        first = await mark(again)
        await again.hear("one")
        assert await again.journal.mark()
        second = await mark(again)
        assert second > first
        waiting = arrival("two", id="m-2")
        place = await again.write(waiting)
        assert not await again.journal.mark()
        assert await mark(again) == second
        await again.store(arrival("two", id="m-2"), place)
        assert await again.journal.mark(), "it is known by the platform's id"

    async def test_it_stays_once_more_is_open_than_it_can_remember(
        self, here: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reconcile_module, "OPEN", 1)
        again, _ = await restored(here)
        written = [(each, await again.write(each)) for each in (arrival("one"), arrival("two"))]
        for each, place in written:
            await again.store(each, place)
        assert not await again.journal.mark()

    async def test_it_does_not_move_before_the_check(self, here: Desk) -> None:
        assert not await here.journal.mark()
        assert not (here.data / "journal" / "checked").exists()


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
        await messages.replace_unread(tx, address, "m-1", "uno")
    here.journal.changed(session)
    await here.new()
    await here.settled()
    [filed] = here.files("memory")
    assert here.said(filed) == [("user", "uno")]

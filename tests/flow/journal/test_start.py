"""What a start finds in the files that the database lacks."""

import asyncio
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.domain.conversation.inbound import Arrival
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import SessionId
from gateway.domain.principals import Label
from gateway.flow.files.workspaces import Workspaces
from gateway.flow.journal import check as check_module
from gateway.flow.journal import journal as journal_module
from gateway.flow.journal.copies import VerifiedFiles
from gateway.flow.journal.copyist import Copyist
from gateway.store.transcript import unread
from gateway.store.transcript.journals import CopyMark
from gateway.workspace.journal import files
from gateway.workspace.journal.files import Place
from tests.fakes.engine import engine_on
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
    found = await again.started()
    await again.journal.check.put_right()
    await again.settled()
    return again, found


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
        again.journal.check.begun(again.restore)
        assert again.said(again.file) == [("message", "hello")]

    async def test_what_will_never_be_stored_does_not(self, here: Desk) -> None:
        await here.write(arrival("uno", edits="m-0"))
        again = await restarted(here)
        [(edit, place)] = await again.journal.unstored()
        again.journal.stored(edit, place, None)
        again.journal.check.begun(again.restore)
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
    async def test_only_what_has_changed_is_read(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        again, _ = await restored(here)
        reads: list[Place] = []
        last = await restarted(again)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "read", heard(files.read, reads))
            await last.started()
            await last.journal.check.put_right()
        assert [place.path for place in reads] == ["checked"]
        last.file.write_bytes(last.file.read_bytes().replace(b"re: one", b"no: one"))
        old(last.file)  # as a tool does that keeps times
        last, _ = await restored(last)
        assert last.said(last.file) == [("message", "one"), ("assistant", "re: one")]

    @pytest.mark.parametrize("complete", [True, False])
    async def test_a_start_that_did_not_store_what_it_found_is_made_again(self, here: Desk, complete: bool) -> None:
        await here.write(arrival("one"))
        old(here.file)
        for _ in range(2):
            again = await restarted(here)
            assert len(await again.journal.unstored()) == 1
            if complete:
                again.journal.check.begun(again.restore)
                await again.journal.check.put_right()
            await again.journal.catch_up()

    @pytest.mark.parametrize("text", ["", "garbage", "1700000000", "9" * 99])
    async def test_without_a_mark_that_can_be_believed_everything_is_read(self, here: Desk, text: str) -> None:
        await here.write(arrival("one"))
        old(here.file)
        mark(here).parent.mkdir()
        mark(here).write_text(text)
        assert len(await here.journal.unstored()) == 1

    async def test_one_of_a_database_that_has_lost_rows_since_is_not_believed(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        again, _ = await restored(here)
        async with again.database.transaction() as tx:
            await tx.execute("update messages set answered_by = null")
            await tx.execute("delete from messages where kind = 'assistant'")
        last, _ = await restored(again)
        assert last.said(last.file) == [("message", "one")]

    async def test_it_moves_on_when_everything_is_stored_and_copied(self, here: Desk, away: AwayAtTimes) -> None:
        again, _ = await restored(here)
        nothing = rows_of(again)
        waiting = arrival("one")
        place = await again.write(waiting)
        await again.settled()
        assert rows_of(again) == nothing, "something waits to be stored"
        await again.store(waiting, place)
        away.away = True
        assert not await again.journal.catch_up()
        assert rows_of(again) == nothing, "something waits to be copied"
        away.away = False
        await again.settled()
        assert rows_of(again) != nothing

    async def test_it_moves_on_by_itself(self, here: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal_module, "RETRY", 0.0)
        await here.hear("one")
        again = await restarted(here)
        await again.started()
        running = asyncio.create_task(again.journal.run())
        while not mark(again).exists() or rows_of(again) == CopyMark():
            await again.journal.catch_up()
        running.cancel()

    async def test_it_stays_once_more_is_open_than_it_can_remember(
        self, here: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        again, _ = await restored(here)
        nothing = rows_of(again)
        monkeypatch.setattr(journal_module, "OPEN", 1)
        written = [(each, await again.write(each)) for each in (arrival("one"), arrival("two"))]
        for each, place in written:
            await again.store(each, place)
        await again.settled()
        assert rows_of(again) == nothing

    async def test_it_does_not_move_before_the_check(self, here: Desk) -> None:
        await here.settled()
        assert not mark(here).exists()

    async def test_a_disk_that_refuses_it_stops_nothing(self, here: Desk) -> None:
        await here.hear("one")
        mark(here).parent.write_text("in the way")
        for _ in range(2):
            here, _ = await restored(here)
        assert here.said(here.file) == [("message", "one")]


class TestYears:
    """More files than are read before anything is taken in."""

    CHATS = 6

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(check_module, "FIRST_FILES", 2)

    @pytest.fixture
    async def lived(self, here: Desk) -> Desk:
        """Each chat has a file with an answer, and the mark is lost."""
        for number in range(self.CHATS):
            session = await here.hear(f"one of {number}", thread=str(number))
            await here.answer(session, f"re: {number}")
        await here.settled()
        return here

    async def test_what_waits_in_the_newest_files_is_stored_first(self, lived: Desk) -> None:
        for file in lived.files():
            old(file)
        waiting = arrival("two", thread="3")
        await lived.write(waiting)
        assert await (await restarted(lived)).started() == [waiting]

    async def test_what_waits_in_others_is_stored_later(self, lived: Desk) -> None:
        waiting = {number: arrival("two", thread=str(number)) for number in range(self.CHATS)}
        for each in waiting.values():
            await lived.write(each)
        again = await restarted(lived)
        assert len(await again.started()) == 2
        await again.journal.check.put_right()
        await again.settled()
        assert await again.rows("select count(*) from messages where text = 'two'") == [(self.CHATS,)]
        for file in again.files():
            assert [text for _, text in again.said(file)][-1] == "two"

    async def test_who_writes_there_meanwhile_comes_after_it(self, lived: Desk) -> None:
        chats = [str(number) for number in range(self.CHATS)]
        for chat in chats:
            await lived.write(arrival("two", thread=chat))
        again = await restarted(lived)
        await again.started()
        for chat in chats:
            await again.hear("three", thread=chat)
        said = await again.rows("select text from messages where text in ('two', 'three') order by session_id, id")
        assert said == [("two",), ("three",)] * self.CHATS

    async def test_a_start_killed_meanwhile_goes_on_where_it_was(self, lived: Desk) -> None:
        again = await restarted(lived)
        await again.started()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Copyist, "look_at", third_kills(Copyist.look_at))
            with pytest.raises(Crash):
                await again.journal.check.put_right()
        await again.journal.catch_up()
        reads: list[Place] = []
        last = await restarted(again)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "read", heard(files.read, reads))
            await last.started()
            await last.journal.check.put_right()
        assert len({place.path for place in reads}) == 1 + self.CHATS - 2

    @pytest.mark.thorough
    @pytest.mark.parametrize("harm", ["edited", "cut short", "emptied", "deleted", "forged"])
    async def test_a_file_that_was_harmed_while_it_was_down_is_put_right(self, lived: Desk, harm: str) -> None:
        lived, _ = await restored(lived)
        before = {file: file.read_bytes() for file in lived.files()}
        said = {file: [text for _, text in lived.said(file)] for file in before}
        for file, data in before.items():
            if harm == "deleted":
                file.unlink()
            else:
                changed = {"edited": data.replace(b"re: ", b"no: "), "cut short": data[:-3], "emptied": b""}
                file.write_bytes(changed.get(harm, data + data.replace(b"one of", b"two of")))
                old(file)
        again = await restarted(lived)
        await again.started()
        places = [Place(again.workspace, str(file.relative_to(again.workspace))) for file in before]
        assert harm == "deleted" or all(map(again.journal.check.holds, places))
        await again.journal.check.put_right()
        assert {file: [text for _, text in again.said(file)] for file in again.files()} == said
        assert not any(map(again.journal.check.holds, places))

    async def test_what_nobody_has_looked_at_is_not_trusted(self, lived: Desk) -> None:
        lived, _ = await restored(lived)
        file = lived.files()[0]
        path = str(file.relative_to(lived.workspace))
        file.write_bytes(file.read_bytes() + b"Pay him.")
        again = await restarted(lived)
        await again.started()
        workspaces = Workspaces(
            engine=engine_on(again.database, people=again.people),
            folder=again.workspace,
            others=again.data,
            unverified=again.journal.check.holds,
            member_mb=lambda: None,
        )
        labels = workspaces.own.labels
        assert await labels.of(path, "any") is Label.UNTRUSTED
        await again.journal.check.put_right()
        assert await labels.of(path, "any") is Label.OWNER
        assert b"Pay him." not in file.read_bytes()

    async def test_a_database_that_is_away_is_waited_for(
        self, lived: Desk, away: AwayAtTimes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(check_module, "RETRY", 0.01)
        for number in range(self.CHATS):
            await lived.write(arrival("two", thread=str(number)))
        again = await restarted(lived)
        await again.started()
        away.away = True
        looking = asyncio.create_task(again.journal.check.put_right())
        assert await again.write(arrival("three", thread="0")) is not None
        away.away = False
        await looking
        assert await again.rows("select count(*) from messages where text = 'two'") == [(self.CHATS,)]

    async def test_many_files_are_looked_at_again_and_again_while_it_runs(self, lived: Desk) -> None:
        """As `supaclaw doctor --requeue` asks for."""
        again, _ = await restored(lived)
        running = asyncio.create_task(again.journal.run())
        async with asyncio.timeout(30):
            for text in ("two", "three"):
                for number in range(self.CHATS):
                    await again.write(arrival(text, thread=str(number)))
                await again.restore(await again.journal.unstored())
                while await again.rows("select count(*) from messages where text = $1", text) != [(self.CHATS,)]:
                    await again.journal.catch_up()
                places = [Place(again.workspace, str(file.relative_to(again.workspace))) for file in again.files()]
                while any(map(again.journal.check.holds, places)):
                    await again.journal.catch_up()
        running.cancel()


@pytest.mark.thorough
async def test_a_thousand_files_that_did_not_change_are_not_opened(here: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "SHARE", 1.0)
    await restored(here)
    day = here.workspace / "sessions" / "2026-01-01"
    day.mkdir(parents=True)
    for number in range(1000):
        file = day / f"{number // 3600:02}-{number // 60 % 60:02}-{number % 60:02}.md"
        file.write_text("no journal")
    await restored(here)
    with capture_logs() as logs:
        await restored(here)
        assert logs == []
        os.utime(day / "00-00-00.md")
        await restored(here)
    assert [entry["event"] for entry in logs] == ["journal.left_over"]


def rows_of(here: Desk) -> CopyMark:
    """Up to where the next start knows the files to be whole."""
    checked = VerifiedFiles(mark(here))
    checked.load(CopyMark(10**9, 10**9))
    return checked.rows


def heard(read: Callable[[Place], Any], places: list[Place]) -> Callable[[Place], Any]:
    def hearing(place: Place) -> Any:
        places.append(place)
        return read(place)

    return hearing


class Crash(Exception):
    pass


def third_kills(look_at: Callable[..., Any]) -> Callable[..., Any]:
    looks = itertools.count(1)

    async def killed(self: Copyist, place: Place) -> bool:
        if next(looks) == 3:
            raise Crash
        done: bool = await look_at(self, place)
        return done

    return killed


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

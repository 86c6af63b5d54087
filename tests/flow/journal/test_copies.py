"""A file is kept up with its rows, made right where it is not, and filed when it is closed."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.flow.journal import copies as copies_module
from gateway.workspace.journal import files
from gateway.workspace.journal.entries import Content
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter
from tests.flow.journal.desk import MEMBER, Desk, arrival, desk
from tests.flow.outage import AwayAtTimes


@pytest.fixture
async def away(dsn: str) -> AsyncIterator[AwayAtTimes]:
    async with await AwayAtTimes.connect(dsn) as database:
        yield database


@pytest.fixture
async def here(away: AwayAtTimes, tmp_path: Path) -> Desk:
    return await desk(away, tmp_path)


@pytest.fixture
def rewrites(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The session files that were written anew."""
    paths, replace = list[str](), files.replace

    def counted(place: Place, data: bytes) -> None:
        if place.path.startswith("sessions/"):
            paths.append(place.path)
        replace(place, data)

    monkeypatch.setattr(files, "replace", counted)
    return paths


class TestDamage:
    async def test_a_damaged_file_is_made_anew_and_the_original_kept(self, here: Desk, rewrites: list[str]) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        whole = here.file.read_bytes()
        damaged = whole[:-5] + b"~" + whole[-4:]
        here.file.write_bytes(damaged)
        again = await desk(here.database, here.workspace.parent)
        again.journal.changed(session)
        await again.settled()
        assert here.file.read_bytes() == whole
        assert len(rewrites) == 1
        [kept] = (here.data / "journal" / "damaged").iterdir()
        assert kept.read_bytes() == damaged

    async def test_a_file_that_was_cut_short_gets_its_end_again(self, here: Desk, rewrites: list[str]) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        whole = here.file.read_bytes()
        here.file.write_bytes(whole[:-30])
        again = await desk(here.database, here.workspace.parent)
        again.journal.changed(session)
        await again.settled()
        assert here.file.read_bytes() == whole
        assert rewrites == []

    async def test_a_file_somebody_deleted_comes_back(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.settled()
        here.file.unlink()
        await here.answer(session, "re: one")
        await here.settled()
        assert here.said(here.file) == [("user", "one"), ("assistant", "re: one")]

    async def test_what_is_written_after_it_was_deleted_is_kept_too(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.settled()
        here.file.unlink()
        await here.hear("two")
        assert here.said(here.file) == [("message", "two")]
        again = await desk(here.database, here.workspace.parent)
        again.journal.changed(session)
        await again.settled()
        assert again.said(again.file) == [("user", "one"), ("message", "two")]

    async def test_rows_a_crash_left_uncopied_are_in_the_file_after_the_next_look(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.hear("two")
        again = await desk(here.database, here.workspace.parent)
        again.journal.changed(session)
        await again.settled()
        assert again.said(again.file) == [("message", "one"), ("assistant", "re: one"), ("message", "two")]

    async def test_an_arrival_that_still_waits_to_be_stored_is_carried_over(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        waiting = arrival("two")
        place = await here.write(waiting)
        data = here.file.read_bytes()
        here.file.write_bytes(data[:9] + b"~" + data[10:])
        again = await desk(here.database, here.workspace.parent)
        again.journal.changed(session)
        await again.settled()
        said = [("user", "one"), ("assistant", "re: one"), ("message", "two")]
        assert again.said(again.file) == said
        await again.store(waiting, place)
        await again.settled()
        assert again.said(again.file) == said

    async def test_an_undamaged_file_is_not_touched(self, here: Desk, rewrites: list[str]) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        inode = here.file.stat().st_ino
        again = await desk(here.database, here.workspace.parent)
        again.journal.changed(session)
        await again.settled()
        assert (here.file.stat().st_ino, rewrites) == (inode, [])


async def test_a_file_is_read_once_and_then_only_grows(
    here: Desk, rewrites: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, read = list[Place](), JournalWriter.read

    async def counted(self: JournalWriter, place: Place) -> Content:
        reads.append(place)
        return await read(self, place)

    monkeypatch.setattr(JournalWriter, "read", counted)
    for number in range(3):
        session = await here.hear(f"question {number}")
        await here.settled()
        await here.answer(session, f"answer {number}")
        await here.settled()
    assert len(here.entries(here.file)) == 6
    assert (len(reads), rewrites) == (1, [])


class TestLimits:
    async def test_files_it_has_to_forget_are_looked_at_again(
        self, here: Desk, monkeypatch: pytest.MonkeyPatch, rewrites: list[str]
    ) -> None:
        monkeypatch.setattr(copies_module, "MAX_FILES_REMEMBERED", 1)
        session = await here.hear("one")
        other = await here.hear("other", chat=MEMBER)
        for _ in range(2):
            for each in (session, other):
                await here.answer(each, "re")
                await here.settled()
        assert [kind for kind, _ in here.said(here.file)] == ["message", "assistant", "assistant"]

    async def test_two_that_open_a_file_at_once_agree_on_one(self, here: Desk) -> None:
        session = await here.store(arrival("one"), None)
        first, second = arrival("two"), arrival("three")
        other = await desk(here.database, here.workspace.parent)
        places = [await here.write(first), await other.write(second)]
        for each, place in zip((first, second), places, strict=True):
            await here.store(each, place)
        await here.settled()
        assert [text for _, text in here.said(here.file)] == ["one", "two", "three"]
        assert await here.rows("select count(*) from journals where session_id = $1", session) == [(1,)]


class TestStrays:
    async def test_a_message_written_elsewhere_while_the_database_was_away_is_put_right(
        self, here: Desk, away: AwayAtTimes
    ) -> None:
        session = await here.hear("one")
        await here.settled()
        again = await desk(here.database, here.workspace.parent)  # it does not remember the file
        away.away = True
        late = arrival("two")
        place = await again.write(late)
        assert place is not None
        await again.journal.sync(place)
        away.away = False
        assert len(here.files()) == 2
        assert await again.store(late, place) == session
        await again.settled()
        assert again.said(again.file) == [("message", "one"), ("user", "two")]
        await again.hear("three")
        assert len(again.said(again.file)) == 3

    async def test_the_owners_first_words_are_kept_while_the_database_is_away(
        self, here: Desk, away: AwayAtTimes
    ) -> None:
        away.away = True
        kept = [arrival("one"), arrival("two")]
        places = [await here.write(each) for each in kept]
        away.away = False
        for each, place in zip(kept, places, strict=True):
            await here.store(each, place)
        await here.settled()
        assert here.said(here.file) == [("message", "one"), ("message", "two")]

    @pytest.mark.parametrize("same", [True, False])
    async def test_what_comes_twice_is_in_the_file_once(self, here: Desk, same: bool) -> None:
        first = arrival("one", id="m-1")
        await here.take(first)
        await here.settled()
        size = here.file.stat().st_size
        await here.hear("one", id="m-1", entry=first.id if same else None)
        assert here.file.stat().st_size == 2 * size
        await here.journal.catch_up()
        await here.settled()
        assert here.said(here.file) == [("message", "one")]
        assert not (here.data / "journal" / "damaged").exists()

    async def test_what_is_ignored_leaves_nothing(self, here: Desk) -> None:
        ignored = arrival("uno", edits="m-0", id="e-1")
        place = await here.write(ignored)
        here.journal.stored(ignored, place, None)
        await here.settled()
        assert here.files() == []

    async def test_a_message_written_into_a_closed_file_goes_into_the_new_one(self, here: Desk) -> None:
        await here.hear("one")
        await here.settled()
        await here.new()
        late = arrival("two")
        place = await here.write(late)
        await here.settled()
        assert place is not None
        assert (place.root / place.path).exists(), "it holds something that is nowhere else"
        await here.store(late, place)
        await here.settled()
        assert here.said(here.file) == [("user", "two")]
        [filed] = here.files("memory")
        assert here.said(filed) == [("user", "one")]


class Crash(BaseException):
    """The end of the process."""


def failing(error: Exception) -> Callable[..., Awaitable[None]]:
    async def fail(*_: object) -> None:
        raise error

    return fail


class TestFiling:
    async def test_a_closed_file_moves_to_memory_and_the_index_grows(self, here: Desk) -> None:
        for number in range(2):
            session = await here.hear(f"question {number}")
            await here.answer(session, f"answer {number}")
            await here.settled()
            opened = here.file.relative_to(here.workspace / "sessions")
            await here.new(summary=f"talk {number}\n→ done")
            await here.settled()
            filed = here.files("memory")[-1]
            assert filed.stem == str(opened).removesuffix(".md").replace("-", "").replace("/", "")
            assert here.said(filed) == [("user", f"question {number}"), ("assistant", f"answer {number}")]
        assert here.files() == []
        index = (here.workspace / "memory" / "INDEX.md").read_text()
        assert index.index("talk 0") < index.index("talk 1")
        assert index.count("· fake ·") == 2
        assert all(f"({file.name})" in index for file in here.files("memory"))
        assert await here.rows("select count(*) from journals where filed_at is not null and path like 'memory/%'") == [
            (2,)
        ]

    async def talk(self, here: Desk, *numbers: int) -> str:
        """One conversation each; what the index says after them."""
        for number in numbers:
            await here.hear(f"question {number}")
            await here.settled()
            await here.new(summary=f"talk {number}")
            await here.settled()
        return (here.workspace / "memory" / "INDEX.md").read_text()

    async def test_a_line_is_added_and_the_others_are_not_written_again(
        self, here: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = await self.talk(here, 1)
        rewritten: list[Place] = []
        really = files.replace

        def replace(place: Place, data: bytes) -> None:
            rewritten.append(place)
            really(place, data)

        monkeypatch.setattr(files, "replace", replace)
        after = await self.talk(here, 2, 3)
        assert after.startswith(before)
        assert after.count("\n- ") == 3
        assert "memory/INDEX.md" not in [place.path for place in rewritten]

    @pytest.mark.parametrize("harm", ["deleted", "emptied", "edited", "cut short"])
    async def test_an_index_that_is_not_as_it_was_left_is_put_right(self, here: Desk, harm: str) -> None:
        before = await self.talk(here, 1, 2)
        index = here.workspace / "memory" / "INDEX.md"
        match harm:
            case "deleted":
                index.unlink()
            case "emptied":
                index.write_text("")
            case "edited":
                index.write_text(before.replace("talk 1", "lies 1"))
            case _:
                index.write_text(before[:-5])
        after = await self.talk(here, 3)
        assert after.startswith(before)
        assert after.count("\n- ") == 3

    async def test_a_line_that_could_not_be_filed_is_there_once(
        self, here: Desk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        before = await self.talk(here, 1)
        with monkeypatch.context() as patch:
            patch.setattr(JournalWriter, "remove", failing(OSError("busy")))
            await here.hear("question 2")
            await here.settled()
            await here.new(summary="talk 2")
            assert not await here.journal.catch_up()
        await here.settled()
        after = (here.workspace / "memory" / "INDEX.md").read_text()
        assert after.startswith(before)
        assert after.count("talk 2") == 1

    async def test_compaction_ends_the_file_and_not_the_session(self, here: Desk) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        await here.compact(session, "They spoke of one.")
        await here.settled()
        assert await here.hear("two") == session
        await here.settled()
        [filed] = here.files("memory")
        assert here.said(filed)[-1] == ("summary", "They spoke of one.")
        assert here.said(here.file) == [("message", "two")]

    async def test_a_session_that_ended_before_it_had_a_file_is_filed_all_the_same(self, here: Desk) -> None:
        session = await here.store(arrival("one"), None)
        await here.answer(session, "re: one")
        await here.new()
        await here.settled()
        [filed] = here.files("memory")
        assert here.said(filed) == [("user", "one"), ("assistant", "re: one")]
        assert "one (2 messages)" in (here.workspace / "memory" / "INDEX.md").read_text()

    @pytest.mark.parametrize("step", ["put_right", "write", "extend", "remove"])
    async def test_a_crash_in_between_is_finished_by_the_next_start(
        self, here: Desk, step: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        if step == "extend":
            await self.talk(here, 0)
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        await here.new()
        done = getattr(JournalWriter, step)

        async def crashing(self: JournalWriter, *arguments: Any, **more: Any) -> None:
            await done(self, *arguments, **more)
            raise Crash

        with monkeypatch.context() as patch:
            patch.setattr(JournalWriter, step, crashing)
            with pytest.raises(Crash):
                await here.settled()
        again = await desk(here.database, here.workspace.parent)
        assert await again.journal.unstored() == []
        again.journal.check.begun(again.restore)
        await again.journal.check.put_right()
        await again.settled()
        filed = again.files("memory")
        assert again.said(filed[-1]) == [("user", "one"), ("assistant", "re: one")]
        assert again.files() == []
        assert (
            (again.workspace / "memory" / "INDEX.md").read_text().count("\n- ") == len(filed) == 1 + (step == "extend")
        )

    async def test_a_crash_before_anything_was_done_is_finished_too(self, here: Desk) -> None:
        await here.hear("one")
        await here.settled()
        await here.new()
        again = await desk(here.database, here.workspace.parent)
        await again.settled()
        assert [again.said(file) for file in again.files("memory")] == [[("user", "one")]]

    async def test_a_damaged_closed_file_is_filed_from_the_database(self, here: Desk) -> None:
        await here.hear("one")
        await here.settled()
        here.file.write_bytes(b"garbage")
        await here.new()
        await here.settled()
        [filed] = here.files("memory")
        assert here.said(filed) == [("user", "one")]
        assert len(list((here.data / "journal" / "damaged").iterdir())) == 1

    async def test_a_filed_name_that_is_taken_moves_to_the_next_second(self, here: Desk) -> None:
        await here.hear("one")
        await here.settled()
        stamp = str(here.file.relative_to(here.workspace / "sessions"))
        taken = f"memory/{stamp.removesuffix('.md').replace('-', '').replace('/', '')}.md"
        async with here.database.connection() as conn:
            await conn.execute(
                """insert into journals (principal_id, session_id, path, closed_at, filed_at)
                   select principal_id, session_id, $1, now(), now() from journals""",
                taken,
            )
        await here.new()
        await here.settled()
        [filed] = here.files("memory")
        assert f"memory/{filed.name}" > taken
        assert await here.rows("select count(*) from journals where filed_at is not null") == [(2,)]

    async def test_a_members_memory_is_in_their_own_root(self, here: Desk) -> None:
        await here.hear("hello", chat=MEMBER)
        await here.settled()
        await here.new(chat=MEMBER)
        await here.settled()
        assert here.files("memory") == []
        names = sorted(path.name for path in (here.data / "principals").rglob("memory/*.md"))
        assert names[-1] == "INDEX.md"
        assert len(names) == 2

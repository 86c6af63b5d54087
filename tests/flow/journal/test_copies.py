"""A file is made right that is not."""

from pathlib import Path
from typing import Any

import pytest

from gateway.flow.journal import copies as copies_module
from gateway.store.pool import Database
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import Held, JournalWriter
from tests.flow.journal.desk import MEMBER, Desk, arrival, desk


@pytest.fixture
async def here(database: Database, tmp_path: Path) -> Desk:
    return await desk(database, tmp_path)


@pytest.fixture
def rewrites(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were written anew."""
    paths, rewrite = list[str](), JournalWriter.rewrite

    async def counted(self: JournalWriter, place: Place, *rest: Any) -> None:
        paths.append(place.path)
        await rewrite(self, place, *rest)

    monkeypatch.setattr(JournalWriter, "rewrite", counted)
    return paths


class TestDamage:
    async def test_a_damaged_file_is_made_anew_and_the_original_kept(self, here: Desk, rewrites: list[str]) -> None:
        session = await here.hear("one")
        await here.answer(session, "re: one")
        await here.settled()
        whole = here.file.read_bytes()
        here.file.write_bytes(whole[:-30])
        again = await desk(here.database, here.workspace.parent)
        again.journal.changed(session)
        await again.settled()
        assert here.file.read_bytes() == whole
        assert len(rewrites) == 1
        [kept] = (here.data / "journal" / "damaged").iterdir()
        assert kept.read_bytes() == whole[:-30]

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

    async def counted(self: JournalWriter, place: Place) -> Held:
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
        monkeypatch.setattr(copies_module, "FILES", 1)
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

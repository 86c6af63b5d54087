"""The copyist goes to work by itself, and comes back to what failed."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.flow.journal import copyist as copyist_module
from gateway.store.connection.pool import Database
from gateway.workspace.journal.writer import JournalWriter
from tests.fakes.eventually import eventually
from tests.flow.journal.desk import Desk, arrival, desk


@pytest.fixture
async def here(database: Database, tmp_path: Path) -> Desk:
    return await desk(database, tmp_path)


async def test_it_copies_by_itself_once_it_is_told(here: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copyist_module, "GATHER", 0.0)
    session = await here.hear("one")
    await here.started()
    await here.journal.check.put_right()  # which copies what it finds
    await here.settled()
    running = asyncio.create_task(here.journal.run())
    await here.answer(session, "re: one")
    await eventually(lambda: here.said(here.file) == [("message", "one"), ("assistant", "re: one")])
    running.cancel()
    await asyncio.wait([running])


async def test_what_a_disk_refused_is_tried_again_and_told_once(here: Desk) -> None:
    session = await here.hear("one")
    await here.settled()
    day = here.file.parent
    here.file.unlink()
    day.rmdir()
    day.write_text("in the way")
    await here.answer(session, "re: one")
    with capture_logs() as logs:
        for _ in range(3):
            assert not await here.journal.catch_up()
    assert [entry["event"] for entry in logs] == ["journal.not_copied"]
    day.unlink()
    await here.settled()
    assert here.said(here.file) == [("user", "one"), ("assistant", "re: one")]


async def test_many_old_sessions_are_worked_off_in_turns(here: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copyist_module, "AT_ONCE", 2)
    for number in range(5):
        await here.store(arrival(f"old {number}", thread=str(number)), None)
    again = await desk(here.database, here.workspace.parent)
    assert not await again.journal.catch_up()
    assert len(again.files()) == 2
    await again.settled()
    assert len(again.files()) == 5


async def test_a_defect_in_one_session_does_not_come_back_for_ever(here: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await here.hear("one")
    with monkeypatch.context() as patch:
        patch.setattr(JournalWriter, "read", None)
        with pytest.raises(TypeError):
            await here.journal.catch_up()
    await here.settled()
    await here.answer(session, "re: one")
    await here.settled()
    assert here.said(here.file) == [("message", "one"), ("assistant", "re: one")]


async def test_the_last_words_before_a_stop_are_copied_once_though_it_is_at_work(here: Desk) -> None:
    session = await here.hear("one")
    await here.answer(session, "re: one")
    assert await asyncio.gather(here.journal.catch_up(), here.journal.catch_up()) == [True, True]
    assert here.said(here.file) == [("message", "one"), ("assistant", "re: one")]

"""Restoring a checkpoint, on the event loop of a gateway."""

import threading
from pathlib import Path

import pytest

from gateway.config.machine import SystemClock
from gateway.domain.json import Json
from gateway.flow.files import checkpoints
from gateway.flow.files.checkpoints import Checkpoints
from gateway.store.connection.pool import Database


async def test_looking_for_locked_text_afterwards_blocks_nobody(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = list[threading.Thread]()
    monkeypatch.setattr(checkpoints, "note_owner_edits", lambda *_: threads.append(threading.current_thread()))

    async def run(*_: object) -> Json:
        return {"before": None, "written": 0, "removed": 0, "left": []}

    await Checkpoints(tmp_path, tmp_path, run).restore(database, SystemClock(), "3f2a9c", None)
    assert threads
    assert threads[0] is not threading.main_thread()

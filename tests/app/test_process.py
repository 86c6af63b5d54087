"""Notifications of other processes, and the closing of replaced models."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from gateway.app.process import TASK_CANCELLED, Process
from gateway.domain.ids import TaskId
from gateway.store.connection.pool import Database
from tests.flow.path import FakeModel, MessagePath, build


@pytest.fixture
async def path(database: Database, tmp_path: Path) -> MessagePath:
    (workspace := tmp_path / "workspace").mkdir()
    return await build(database, workspace, FakeModel())


async def test_a_cancelled_task_is_passed_on_and_a_malformed_payload_is_not(path: MessagePath) -> None:
    process, cancelled = Process(path.parts), list[TaskId]()
    path.signals.cancelled.subscribe(cancelled.extend)
    task = uuid4()
    with capture_logs() as logs:
        process.notified(TASK_CANCELLED, "anything")
        process.notified(TASK_CANCELLED, str(task))
    assert cancelled == [task]
    assert [log["event"] for log in logs] == ["notification.malformed"]


async def test_a_model_that_cannot_be_closed_ends_nothing_else(path: MessagePath) -> None:
    class Broken:
        async def close(self) -> None:
            raise OSError("gone")

    model: Any = Broken()
    with capture_logs() as logs:
        await Process(path.parts)._retire(model)
    assert [log["event"] for log in logs] == ["models.not_closed"]

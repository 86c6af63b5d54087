from pathlib import Path

import pytest

from gateway.store.connection.pool import Database
from tests.flow.path import FakeModel, MessagePath, build


@pytest.fixture
def model() -> FakeModel:
    return FakeModel()


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return workspace


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel) -> MessagePath:
    """The path of a message, its worker and sender not yet running."""
    return await build(database, workspace, model)

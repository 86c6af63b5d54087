"""A served gateway, a browser, a gateway as a process of its own, and a workspace with a persona in it."""

from pathlib import Path

import pytest

from tests.browser.conftest import browser
from tests.flow.conftest import model
from tests.journeys.conftest import gateway, models, process, telegram
from tests.web.conftest import running, web

__all__ = ["browser", "gateway", "model", "models", "process", "running", "telegram", "web"]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "SOUL.md").write_text("Be kind.")
    return workspace

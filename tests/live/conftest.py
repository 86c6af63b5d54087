"""Only `pytest -m live` comes in here: these tests reach real providers and cost money."""

from pathlib import Path

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "live: reaches a real provider")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    chosen = config.getoption("markexpr") == "live"
    return None if chosen or collection_path.suffix != ".py" else True

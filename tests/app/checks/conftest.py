import socket
from pathlib import Path

import pytest

from tests.app.checks.contexts import Examine, examine_with


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def examine(tmp_path: Path) -> Examine:
    """Make one check of a gateway whose everything lies in `tmp_path`."""
    return examine_with(tmp_path)

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.background.upkeep.health import notify_systemd


@pytest.fixture(params=["path", "abstract"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """What systemd listens on, and how it is told to us."""
    name = str(tmp_path / "notify")
    address, shown = (name, name) if request.param == "path" else (f"\0{name}", f"@{name}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.settimeout(10)
        receiver.bind(address)
        yield receiver, shown


async def test_it_is_told(listening: tuple[socket.socket, str]) -> None:
    receiver, address = listening
    for state in ("READY=1", "WATCHDOG=1"):
        await notify_systemd(address, state)
        assert receiver.recv(100) == state.encode()


async def test_where_nobody_listens_nothing_happens(tmp_path: Path) -> None:
    with capture_logs() as logs:
        await notify_systemd(None, "READY=1")
        await notify_systemd("", "READY=1")
        await notify_systemd(str(tmp_path / "gone"), "READY=1")
    assert [log["event"] for log in logs] == ["systemd.not_told"]

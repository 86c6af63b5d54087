"""Telling systemd, where it started us, that we are ready and alive."""

import socket

import structlog

log = structlog.get_logger(__name__)


async def notify(address: str | None, state: str) -> None:
    """Send a state to `$NOTIFY_SOCKET`; an address that begins with @ is an abstract one. Never raises, never waits."""
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            sender.sendto(state.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)
    except OSError as exc:
        log.warning("systemd.not_told", state=state, error=str(exc))

"""What this machine is told: the socket, the local credential, the line that says it is ready."""

import os
import socket
import sys
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from secrets import token_urlsafe

from gateway.domain.errors import OwnerMustAct
from gateway.llm.client import Description


def listening(host: str, port: int) -> socket.socket:
    """The web's socket, taken before anything else: who connects early waits, a port in use stops the start.

    Raises `OwnerMustAct`, also for an address that other machines can reach.
    """
    if not _loopback(host):
        raise OwnerMustAct(
            f"web.host {host} would open the gateway to other machines; use 127.0.0.1 and a tunnel or proxy in front"
        )
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512
        )
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise OwnerMustAct(f"cannot listen on {host}:{port}: {reason}; set web.port or SUPACLAW_PORT") from exc


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def is_secret(variable: str) -> bool:
    """Whether an environment variable of this name holds something to hide."""
    return variable.endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD"))


def url(listening: socket.socket) -> str:
    """Where the socket can be reached from this machine."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def local_token(data: Path) -> str:
    """The credential of programs on this machine that may read the data folder; a new one at every start."""
    path = data / "keys" / "local-token"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    token = f"claw_{token_urlsafe(32)}"
    with open(path, "w", encoding="ascii", opener=partial(os.open, mode=0o600)) as file:
        file.write(f"{token}\n")
    return token


def announce(link: str, model: Description) -> None:
    """Tell whoever started it, on standard output."""
    sys.stdout.write(f"ready\nweb   {link}\nmodel {model.active} ({model.why})\n")
    sys.stdout.flush()

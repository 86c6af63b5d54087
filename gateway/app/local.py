"""Local access for other programs: the socket, the local token, the page's host name, the ready line."""

import errno
import re
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from pathlib import Path
from secrets import token_hex, token_urlsafe

from gateway.config.data.files import create_private, read_regular, write_regular
from gateway.config.model import WebSettings
from gateway.domain.errors import OwnerMustAct
from gateway.llm.client import Description

_PAGE = re.compile(r"claw-[0-9a-f]{20}\.localhost")


def listen_as_configured(web: WebSettings, first_code: str) -> socket.socket:
    """Listen, beyond loopback only behind a proxy that is named and speaks https, and with a code to sign in first.

    Raises `OwnerMustAct`.
    """
    needed = {
        "SUPACLAW_PUBLIC_URL=https://…": (web.public_url or "").startswith("https://"),
        "SUPACLAW_PROXIES, its networks": bool(web.proxies) and all(each.prefixlen for each in web.proxies),
        "SUPACLAW_SIGN_IN_CODE, 32 or more random characters": _is_strong(first_code),
    }
    missing = [name for name, there in needed.items() if not there]
    if first_code and not _is_strong(first_code):
        raise OwnerMustAct("SUPACLAW_SIGN_IN_CODE is too weak; set it to the output of `openssl rand -hex 32`")
    if missing and web.proxies and not _loopback(web.host):
        raise OwnerMustAct(f"behind a proxy, web.host {web.host} also needs {' and '.join(missing)}")
    return listen(web.host, web.port, public=not missing)


def _is_strong(code: str) -> bool:
    """Whether random hexadecimal digits or letters have 128 bits."""
    return len(code) >= 32 and len(set(code)) >= 8


def listen(host: str, port: int, *, public: bool = False) -> socket.socket:
    """Open the web's socket, before everything else: early clients wait, and a port in use stops the start.

    Raises `OwnerMustAct`, also for an address that other machines can reach, unless `public`.
    """
    if not (public or _loopback(host)):
        raise OwnerMustAct(
            f"web.host {host} would expose the gateway to other machines; use 127.0.0.1 and a tunnel or proxy in front"
        )
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=512
        )
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise OwnerMustAct(f"cannot listen on {host}:{port}: {reason}; set web.port or SUPACLAW_PORT") from exc


@contextmanager
def reserve_other_loopback(listening: socket.socket) -> Iterator[None]:
    """Hold the port on the other loopback address too: browsers may try it first for names below `localhost`.

    Nothing answers there, so browsers fall back to our address. Raises `OwnerMustAct` if another program answers.
    """
    v4 = listening.family is socket.AF_INET
    host, port = "::1" if v4 else "127.0.0.1", listening.getsockname()[1]
    with ExitStack() as stack:
        if not _loopback(listening.getsockname()[0]):  # other machines reach it, at addresses of their own
            yield
            return
        try:
            stack.enter_context(socket.socket(socket.AF_INET6 if v4 else socket.AF_INET)).bind((host, port))
        except OSError as exc:
            if exc.errno == errno.EADDRINUSE:
                fix = "browsers would take it for the gateway; stop it, or set web.port or SUPACLAW_PORT"
                raise OwnerMustAct(f"another program has port {port} of {host}: {fix}") from exc
        yield


def _loopback(host: str) -> bool:
    with suppress(ValueError):
        return host == "localhost" or ip_address(host).is_loopback
    return False


def is_secret(variable: str) -> bool:
    """Whether the value of an environment variable with this name must be hidden."""
    return variable.endswith(("_KEY", "_TOKEN", "_SECRET", "_PASSWORD", "_SIGN_IN_CODE"))


def url(listening: socket.socket) -> str:
    """The socket's address for programs on this machine."""
    host, port = listening.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def local_token(data: Path) -> str:
    """Create the token of local programs that may read the data folder; every start creates a new one."""
    token = f"claw_{token_urlsafe(32)}"
    write_regular(data / "keys" / "local-token", f"{token}\n".encode())
    return token


def page_name(data: Path) -> str:
    """The page's host name on this machine, the same at every start; other programs can't guess it."""
    path = data / "keys" / "page-name"
    with suppress(OSError):
        if _PAGE.fullmatch(name := read_regular(path, 100).decode("ascii", "ignore").strip()):
            return name
    create_private(path, (name := f"claw-{token_hex(10)}.localhost").encode(), anew=True)
    return name


def announce(address: str, command: str | None, link: Callable[[], str], model: Description) -> None:
    """Print the ready line, with a sign-in link if standard output is a terminal and no `command` prints one."""
    seen = sys.stdout.isatty() and command is None
    web = link() if seen else f"{address}  (`{command or 'supaclaw web'}` prints a link to sign in)"
    sys.stdout.write(f"ready\nweb   {web}\nmodel {model.active} ({model.why})\n")
    sys.stdout.flush()

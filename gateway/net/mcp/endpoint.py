"""Where an MCP server is, and what it answers: the types of `connection` that need no SDK."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gateway.domain.json import Json
from gateway.net.errors import NetError
from gateway.sandbox.workshop import Running

ALONE, REACHES = "stdio:", "stdio-net:"
"""How the addresses of programs begin: without network, and with one to the hosts that follow its name."""


class ServerError(NetError):
    """An error in the server's own words."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A server as one person reaches it; `headers` hold credentials, the variables of one that is started."""

    name: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    launch: Callable[[], Awaitable[Running]] | None = field(default=None, repr=False, compare=False)
    """Starts it, where it is a process in the jail."""

    @property
    def host(self) -> str:
        """For messages."""
        return urlsplit(self.url).hostname or self.name


@dataclass(frozen=True, slots=True)
class Blob:
    """A picture, a sound or a file."""

    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a call; `failed` if the tool says so."""

    text: str
    blobs: tuple[Blob, ...] = ()
    structured: Json = None
    failed: bool = False

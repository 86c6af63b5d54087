"""Facts of a secret besides its value."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import PrincipalId

NAME = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
MAX_VALUE = 64 * 1024
"""Characters."""
_PLACE = re.compile(r"(header|field):[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
HOST = r"(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::\d{1,5})?"
_PORTS = {"https": 443, "http": 80, "postgresql": 5432}


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a secret may be sent: to these origins, by these tools, in one place; an empty field allows nothing.

    `place` is `header:NAME`, or `field:NAME` for a field of a token request.
    """

    hosts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    place: str = ""

    @classmethod
    def of(cls, hosts: Iterable[str], tools: Iterable[str], place: str) -> "Binding":
        """Parse a person's input; raises `OwnerMustAct`."""
        if place and not _PLACE.fullmatch(place):
            raise OwnerMustAct(f"{place!r} is not a place: write header:NAME, or field:NAME of a token request")
        return cls(tuple(dict.fromkeys(map(origin_of, hosts))), tuple(dict.fromkeys(tools)), place)


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts that the seal of a value is bound to."""

    principal: PrincipalId
    shared: bool
    name: str
    version: int
    binding: Binding


def check_name(name: str) -> str:
    """Return the name; raises `OwnerMustAct` if a reference can't hold it."""
    if not re.fullmatch(NAME, name):
        raise OwnerMustAct(f"{name[:64]!r} isn't a valid secret name: use letters, digits and _, such as WEATHER_KEY")
    return name


def check_value(value: str) -> str:
    """The value without the final line break of a file; raises `OwnerMustAct` if it isn't valid."""
    value = value.removesuffix("\n").removesuffix("\r")
    if not value.strip() or len(value) > MAX_VALUE or "\0" in value:
        raise OwnerMustAct(f"a secret has 1 to {MAX_VALUE:,} characters; nothing was stored")
    return value


def origin_of(host: str) -> str:
    """The origin, as `https://name:port`, of a host; `http://` has to be written out. Raises `OwnerMustAct`."""
    text = host.strip().lower()
    try:
        parts = urlsplit(text if "://" in text else f"https://{text}")
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        port = None
    if port is None or not re.fullmatch(HOST, parts.netloc) or parts.path.strip("/") or parts.query:
        raise OwnerMustAct(f"{host[:100]!r} is not a host: write api.example.org, with :PORT if it isn't 443")
    name = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
    return f"{parts.scheme}://{name}:{port}"

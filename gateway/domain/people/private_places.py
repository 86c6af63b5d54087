"""Entries of `net.private_allow`: what of a private network may be reached."""

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Annotated

from pydantic import AfterValidator

_ENTRY = re.compile(
    r"(?:\[(?P<bracketed>[0-9a-f:./]+)\]|(?P<name>[a-z0-9_.-]+(?:/\d{1,2})?))(?::(?P<port>[1-9]\d{0,4}))?",
    re.IGNORECASE,
)
_EXPLANATION = (
    'use a name, an address or a network, with a port if you can: "nas.lan:8080", "192.168.1.0/24", "[fd00::1]:80"'
)


@dataclass(frozen=True, slots=True)
class PrivatePlace:
    """A host name or a network, on one port or on any."""

    name: str
    network: IPv4Network | IPv6Network | None
    port: int | None

    def covers(self, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
        """Whether it lets this name, or this address of it, be reached there."""
        if self.port not in (None, port):
            return False
        return self.name == host if self.network is None else address is not None and address in self.network


def private_place(text: str) -> PrivatePlace:
    """Raises `ValueError` for what is neither a name nor a network."""
    found = _ENTRY.fullmatch(text)
    if found is None or int(found["port"] or 1) > 65_535:
        raise ValueError(_EXPLANATION)
    name = (found["bracketed"] or found["name"]).lower().rstrip(".")
    port = int(found["port"]) if found["port"] else None
    if found["bracketed"] or "/" in name or name.rpartition(".")[2].isdigit():
        try:
            return PrivatePlace("", ip_network(name), port)
        except ValueError:
            raise ValueError(_EXPLANATION) from None
    return PrivatePlace(name, None, port)


def _checked(text: str) -> str:
    private_place(text)
    return text


PrivateEntry = Annotated[str, AfterValidator(_checked)]
"""An entry as written in the configuration."""

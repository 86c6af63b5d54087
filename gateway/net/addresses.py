"""Which addresses may be reached: URLs in one strict grammar, public IP addresses, the owner's rules, and names that
are checked when they are looked up. URLs on which parsers disagree are refused.

The table of networks is ours: the standard library's differs between its patch releases."""

import asyncio
import re
import socket
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from urllib.parse import quote, urljoin

from gateway.domain.errors import required
from gateway.domain.settings import PrivatePlace, private_place
from gateway.net.errors import NetError


class Reach(StrEnum):
    """The rule for connections to an address: always, only if it is listed, or never."""

    PUBLIC = "public"
    PRIVATE = "private"
    """Only if `net.private_allow` lists it."""
    NEVER = "never"
    """Cloud metadata, link-local, multicast, tunnels, documentation: always blocked."""


_METADATA = frozenset(
    map(ip_address, ["100.100.100.200", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254", "fd00:42::42"])
)


def _networks(text: str) -> tuple[IPv4Network, ...]:
    return tuple(map(IPv4Network, text.split()))


_PRIVATE4 = _networks("10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 172.16.0.0/12 192.168.0.0/16 198.18.0.0/15")
_NEVER4 = _networks(
    "0.0.0.0/8 169.254.0.0/16 192.0.0.0/24 192.0.2.0/24 192.31.196.0/24 192.52.193.0/24 192.88.99.0/24 "
    "192.175.48.0/24 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3"
)
_PRIVATE6 = tuple(map(IPv6Network, ("::1/128", "fc00::/7")))
_GLOBAL6 = IPv6Network("2000::/3")
_NEVER6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")))
"""Teredo, ORCHID and benchmarking, documentation, 6to4, AS112, documentation."""
_NAT64 = IPv6Network("64:ff9b::/96")
_ISATAP = (b"\x00\x00\x5e\xfe", b"\x02\x00\x5e\xfe")


def parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    """The address in this text, for a mapped IPv6 address the IPv4 one; None for a name and an address with a zone."""
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        return None if address.scope_id else address.ipv4_mapped or address
    return address


def reach(address: IPv4Address | IPv6Address) -> Reach:
    """The rule for connections to this address. A NAT64 address is public if its IPv4 address is, else never."""
    if address in _METADATA:
        return Reach.NEVER
    if isinstance(address, IPv4Address):
        return _reach_of(any(address in net for net in _PRIVATE4), all(address not in net for net in _NEVER4))
    if address in _NAT64:
        behind = reach(IPv4Address(address.packed[-4:]))
        return Reach.PUBLIC if behind is Reach.PUBLIC else Reach.NEVER
    if address.packed[8:12] in _ISATAP:
        return Reach.NEVER
    public = address in _GLOBAL6 and all(address not in net for net in _NEVER6)
    return _reach_of(any(address in net for net in _PRIVATE6), public)


def _reach_of(private: bool, public: bool) -> Reach:
    return Reach.PRIVATE if private else Reach.PUBLIC if public else Reach.NEVER


MAX_URL = 4_000
_URL = re.compile(r"(https?)://([^/?#]*)([/?#].*)?", re.IGNORECASE)
_HOST = re.compile(
    r"(?=.{1,253}$)(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
)
_PLACE = re.compile(r"(?:\[([0-9a-f:.]{2,45})\]|([^:\[\]]+))(?::([1-9]\d{0,4}))?", re.IGNORECASE)
_NUMBER = re.compile(r"0x[0-9a-f]*|\d+")
_QUAD = re.compile(r"(?:0|[1-9]\d{0,2})(?:\.(?:0|[1-9]\d{0,2})){3}")
_LOCAL = (".localhost", ".local", ".internal", ".home.arpa", ".svc")
_BAD_PORTS = frozenset(
    {1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 5432, 6000, 6379, 6566, 6667, 6697, 10080, 11211}
)
"""Ports of services that may take a request for commands; browsers block most of them, too."""


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a request; `host` is lower-case ASCII without a final dot, an IPv6 address without brackets."""

    scheme: str
    host: str
    port: int
    rest: str

    @property
    def url(self) -> str:
        """The whole address."""
        return f"{self.origin}{self.rest}"

    @property
    def origin(self) -> str:
        """Scheme and host, and the port unless it is the usual one."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return f"{self.scheme}://{shown}{'' if self.port == usual else f':{self.port}'}"

    @property
    def local(self) -> bool:
        """Whether it is a name that only a private network resolves."""
        name = parse_ip(self.host) is None
        return name and ("." not in self.host or self.host.endswith(_LOCAL))

    @property
    def odd_port(self) -> bool:
        """Whether websites don't use this port."""
        return self.port in _BAD_PORTS or (self.port < 1024 and self.port not in (80, 443))


def parse_url(url: str) -> Target:
    """Parse an address in the strict grammar; raises `NetError`."""
    if len(url) > MAX_URL:
        raise _invalid_url(f"it is longer than {MAX_URL:,} characters")
    if any(ord(char) <= 32 or char == "\\" or unicodedata.category(char)[0] in "CZ" for char in url):
        raise _invalid_url("it has spaces, backslashes or invisible characters in it; encode them")
    found = required(_URL.fullmatch(url), _invalid_url('it must start with "http://" or "https://" and a host'))
    if "@" in found[2]:
        raise _invalid_url("a user name before the host isn't supported")
    place = _PLACE.fullmatch(found[2])
    if place is None or int(place[3] or 1) > 65_535:
        raise _invalid_url("its host or port isn't valid")
    scheme = found[1].lower()
    port = int(place[3]) if place[3] else {"http": 80, "https": 443}[scheme]
    rest = quote((found[3] or "/").partition("#")[0], safe="!$%&'()*+,/:;=?@[]~|^`{}\"<>-._")
    return Target(
        scheme, _ip_host(place[1]) if place[1] else _host_name(place[2]), port, rest if rest[:1] == "/" else f"/{rest}"
    )


def redirect_target(base: Target, location: str) -> Target:
    """The target of a redirect from `base`; raises `NetError`."""
    try:
        return parse_url(urljoin(base.url, location))
    except ValueError:
        raise _invalid_url("the redirect's target isn't valid") from None


def _ip_host(text: str) -> str:
    address = required(parse_ip(text), _invalid_url("its host isn't valid"))
    return str(address)


def _host_name(text: str) -> str:
    host = (text if text.isascii() else _encoded(text)).lower().removesuffix(".")
    if not _HOST.fullmatch(host):
        raise _invalid_url("its host isn't valid")
    # Some parsers take any host that ends in a number for an IPv4 address, in one of a dozen spellings.
    if _NUMBER.fullmatch(host.rpartition(".")[2]) and not (_QUAD.fullmatch(host) and parse_ip(host)):
        raise _invalid_url("its host is a number in an unusual spelling; write it as 192.0.2.1")
    return host


def _encoded(host: str) -> str:
    import idna

    try:
        return idna.encode(unicodedata.normalize("NFC", host.lower())).decode()
    except idna.IDNAError:
        raise _invalid_url("its host has characters that aren't allowed in a host name") from None


def _invalid_url(reason: str) -> NetError:
    return NetError("invalid_url", f"The address can't be used: {reason}.")


@dataclass(frozen=True, slots=True)
class Rules:
    """The owner's lists; names include their subdomains, `private` are the allowed places in private networks."""

    private: tuple[PrivatePlace, ...] = ()
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    @classmethod
    def of(cls, private: Sequence[str], allow: Sequence[str] = (), deny: Sequence[str] = ()) -> "Rules":
        """Parse the lists of the configuration."""
        return cls(tuple(map(private_place, private)), tuple(map(_bare_host, allow)), tuple(map(_bare_host, deny)))

    def admit(self, target: Target) -> None:
        """Raise `NetError` if the target is forbidden, before its name is looked up."""
        self.admit_host(target.host)
        address = parse_ip(target.host)
        listed = (place.port for place in self.private if place.covers(target.host, address, target.port))
        if target.odd_port and not any(listed):
            raise _not_allowed(f"port {target.port} isn't a usual web port")
        if target.local and not self.private:
            raise _not_allowed(_only(f"{target.host} is a name in a private network", target.host, target.port))
        if address is not None:
            self.check(target.host, target.port, target.host)

    def admit_host(self, host: str) -> None:
        """Raise `NetError` if the owner's lists exclude this host."""
        if _covers(self.deny, host):
            raise _not_allowed(f"{host} is in tools.web.deny_hosts")
        if self.allow and not _covers(self.allow, host):
            raise _not_allowed(f"{host} is not in tools.web.allow_hosts")

    def check(self, host: str, port: int, address: str) -> None:
        """Raise `NetError` if connections to this address of the host are forbidden."""
        found = parse_ip(address)
        kind = reach(found) if found else Reach.NEVER
        if kind is Reach.PRIVATE and any(place.covers(host, found, port) for place in self.private):
            return
        if kind is Reach.PRIVATE:
            raise _not_allowed(_only(f"{host} is in a private network", host, port))
        if kind is Reach.NEVER:
            raise _not_allowed(f"{host} has an address that is always blocked")


def _bare_host(host: str) -> str:
    return host.lower().removeprefix("*.").strip(".")


def _covers(names: Sequence[str], host: str) -> bool:
    return any(host == name or host.endswith(f".{name}") for name in names)


def _only(fact: str, host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f'{fact}; only its owner can allow it, with "{shown}:{port}" in net.private_allow'


def _not_allowed(reason: str) -> NetError:
    return NetError("not_allowed", f"Not connected: {reason}.")


async def checked_addresses(host: str, port: int, rules: Rules) -> list[str]:
    """The addresses of a host, each checked by the rules; raises `NetError`.

    One forbidden address refuses the whole name, since we can't guess which of them is meant.
    """
    addresses = await look_up(host, port)
    for address in addresses:
        rules.check(host, port, address)
    return addresses


async def look_up(host: str, port: int) -> list[str]:
    """All addresses of a name; raises `NetError`."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NetError("unknown_host", f"{host} was not found; check the spelling of the address.") from None
    return list(dict.fromkeys(str(each[4][0]) for each in found))

"""Web addresses in one strict grammar: what parsers disagree about is refused."""

import re
import unicodedata
from dataclasses import dataclass
from urllib.parse import quote, urljoin

from gateway.net.addresses import plain
from gateway.net.errors import NetError

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
"""Of services that take a request for commands; browsers refuse most of them, too."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes; `host` is lower-case ASCII without a final dot, an IPv6 address without brackets."""

    scheme: str
    host: str
    port: int
    rest: str

    @property
    def url(self) -> str:
        """As it is asked for."""
        return f"{self.origin}{self.rest}"

    @property
    def origin(self) -> str:
        """Scheme, host, and port where it is not the usual one."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        usual = {"http": 80, "https": 443}[self.scheme]
        return f"{self.scheme}://{shown}{'' if self.port == usual else f':{self.port}'}"

    @property
    def local(self) -> bool:
        """Whether the name means something in a private network only."""
        name = plain(self.host) is None
        return name and ("." not in self.host or self.host.endswith(_LOCAL))

    @property
    def odd_port(self) -> bool:
        """Whether no website is on such a port."""
        return self.port in _BAD_PORTS or (self.port < 1024 and self.port not in (80, 443))


def parse(url: str) -> Target:
    """Raises `NetError`."""
    if len(url) > MAX_URL:
        raise _invalid(f"it is longer than {MAX_URL:,} characters")
    if any(ord(char) <= 32 or char == "\\" or unicodedata.category(char)[0] in "CZ" for char in url):
        raise _invalid("it has spaces, backslashes or invisible characters in it; encode them")
    found = _URL.fullmatch(url)
    if found is None:
        raise _invalid('it must start with "http://" or "https://" and a host')
    if "@" in found[2]:
        raise _invalid("a user name before the host isn't supported")
    place = _PLACE.fullmatch(found[2])
    if place is None or int(place[3] or 1) > 65_535:
        raise _invalid("its host or port isn't valid")
    scheme = found[1].lower()
    port = int(place[3]) if place[3] else {"http": 80, "https": 443}[scheme]
    rest = quote((found[3] or "/").partition("#")[0], safe="!$%&'()*+,/:;=?@[]~|^`{}\"<>-._")
    return Target(
        scheme, _address(place[1]) if place[1] else _name(place[2]), port, rest if rest[:1] == "/" else f"/{rest}"
    )


def join(base: Target, location: str) -> Target:
    """Where a redirect of `base` leads; raises `NetError`."""
    try:
        return parse(urljoin(base.url, location))
    except ValueError:
        raise _invalid("the redirect's target isn't valid") from None


def _address(text: str) -> str:
    if (address := plain(text)) is None:
        raise _invalid("its host isn't valid")
    return str(address)


def _name(text: str) -> str:
    host = (text if text.isascii() else _encoded(text)).lower().removesuffix(".")
    if not _HOST.fullmatch(host):
        raise _invalid("its host isn't valid")
    # Whatever ends in a number is an IPv4 address to some parser, in one of a dozen spellings.
    if _NUMBER.fullmatch(host.rpartition(".")[2]) and not (_QUAD.fullmatch(host) and plain(host)):
        raise _invalid("its host is a number in an unusual spelling; write it as 192.0.2.1")
    return host


def _encoded(host: str) -> str:
    import idna

    try:
        return idna.encode(unicodedata.normalize("NFC", host.lower())).decode()
    except idna.IDNAError:
        raise _invalid("its host has characters that aren't allowed in a host name") from None


def _invalid(reason: str) -> NetError:
    return NetError("invalid_url", f"The address can't be used: {reason}.")

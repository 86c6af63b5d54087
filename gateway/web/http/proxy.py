"""Requests to the public address, which come through a reverse proxy on this machine."""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

_DEFAULT_PORTS = {"https": 443, "http": 80}


def hosts_of(public_url: str | None) -> frozenset[str]:
    """The allowed Host headers of requests to this address."""
    if public_url is None:
        return frozenset()
    url = urlsplit(public_url)
    return frozenset({url.netloc} if url.port else {url.netloc, f"{url.netloc}:{_DEFAULT_PORTS[url.scheme]}"})


@dataclass(frozen=True, slots=True)
class ProxyHeaders:
    """Sets the scheme of requests to the public address, and the real client of all that a proxy passed on.

    The proxy runs on this machine, so X-Forwarded-For is trusted from a loopback peer only, whatever Host it sends.
    Each proxy appends whom it heard: the client is the last entry that is not on this machine.
    """

    app: ASGIApp
    public_url: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            scope = {**scope, "client": _client(scope, headers)}
            if headers.get("host", "").lower() in hosts_of(self.public_url):
                scope["scheme"] = urlsplit(self.public_url).scheme
        await self.app(scope, receive, send)


def is_loopback(client: str) -> bool:
    """Whether the address is this machine's own; raises `ValueError` if it is none."""
    address = ip_address(client)
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _client(scope: Scope, headers: Headers) -> tuple[str, int] | None:
    """The peer itself where a proxy named nobody, or nonsense."""
    peer: tuple[str, int] | None = scope.get("client")
    hops = ",".join(headers.getlist("x-forwarded-for")).split(",")
    try:
        if peer is None or not is_loopback(peer[0]):
            return peer
        return next(((hop.strip(), 0) for hop in reversed(hops) if not is_loopback(hop.strip())), peer)
    except ValueError:
        return peer

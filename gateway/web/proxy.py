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
    """Sets the scheme of the public address and the real client of such requests.

    The client is the last entry of X-Forwarded-For, the only one set by the proxy itself; it is trusted only from a
    peer on this machine.
    """

    app: ASGIApp
    public_url: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if headers.get("host", "").lower() in hosts_of(self.public_url):
                scope = {**scope, "scheme": urlsplit(self.public_url).scheme, "client": _client(scope, headers)}
        await self.app(scope, receive, send)


def _client(scope: Scope, headers: Headers) -> tuple[str, int] | None:
    peer: tuple[str, int] | None = scope.get("client")
    forwarded = ",".join(headers.getlist("x-forwarded-for")).rpartition(",")[2].strip()
    try:
        return (str(ip_address(forwarded)), 0) if peer and ip_address(peer[0]).is_loopback else peer
    except ValueError:
        return peer

"""Headers: the security headers of every response, the page's own host and cookie, other origins, a reverse proxy."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gateway.config.value_types import LOOPBACK_HOSTS

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src 'self'; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(self)",
    "Cache-Control": "no-store",
}


HSTS = "max-age=31536000"
"""A year; without subdomains, which may belong to others."""


@dataclass(frozen=True, slots=True)
class SecurityHeaders:
    """Adds the headers to every response, errors included, and HSTS over https. A route may override them."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                if scope["scheme"] == "https":
                    headers.setdefault("Strict-Transport-Security", HSTS)
                if scope["path"].startswith("/v1/"):
                    headers.setdefault("X-Request-Id", f"req_{uuid4().hex}")
            await send(message)

        await self.app(scope, receive, secured)


SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({None, "same-origin", "none"})
_COOKIES = ("claw", "__Host-claw")


def page_url(base: str, name: str) -> str:
    """`base` with the page's own host name in the place of a loopback one.

    A browser sends the cookies of a host to all of its ports, those of other programs included; this host
    can't be guessed.
    """
    scheme, _, rest = base.rstrip("/").partition("://")
    host, _ = split_host(rest)
    return f"{scheme}://{name + rest[len(host) :] if scheme == 'http' and host in LOOPBACK_HOSTS else rest}"


def split_host(host: str) -> tuple[str, str]:
    """Split a Host header into name and port; an IPv6 name keeps its brackets, a missing port is empty."""
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and not port.endswith("]") else (host, "")


def cookie_name(request: Request) -> str:
    """The session cookie's name; the strict `__Host-` prefix needs https, which loopback does not use."""
    return _COOKIES[request.url.scheme == "https"]


def has_cookie(request: Request) -> bool:
    """Whether it carries a session cookie, valid or not; a browser adds it to requests of any page."""
    return any(name in request.cookies for name in _COOKIES)


def is_foreign(request: Request) -> bool:
    """Whether another page may have sent this; a program that isn't a browser sends a token and no headers of pages."""
    headers = request.headers
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    own = f"{request.url.scheme}://{headers.get('host', '').lower()}"
    if request.method in SAFE_METHODS:
        followed_a_link = headers.get("sec-fetch-mode") == "navigate"
        return not (followed_a_link or (site in _OWN_SITE and origin in {None, own}))
    if (site, origin) == (None, None) and "authorization" in headers:
        return has_cookie(request)
    # a form on a page without referrer has the origin "null"; then Sec-Fetch-Site decides
    return not ((origin == own and site in _OWN_SITE) or (origin in {None, "null"} and site == "same-origin"))


_DEFAULT_PORTS = {"https": 443, "http": 80}


def hosts_of(public_url: str | None) -> frozenset[str]:
    """The allowed Host headers of requests to this address."""
    if public_url is None:
        return frozenset()
    url = urlsplit(public_url)
    return frozenset({url.netloc} if url.port else {url.netloc, f"{url.netloc}:{_DEFAULT_PORTS[url.scheme]}"})


Proxies = tuple[IPv4Network | IPv6Network, ...]


@dataclass(frozen=True, slots=True)
class ProxyHeaders:
    """Sets the scheme of requests to the public address, and the real client of all that a proxy passed on.

    X-Forwarded-For is trusted from a peer on this machine or in `proxies` only, whatever Host it sends; other peers get
    nothing. Each proxy appends its peer: the client is the last entry that isn't one of them.
    """

    app: ASGIApp
    public_url: str
    proxies: Proxies = ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            if (peer := scope.get("client")) and not is_proxy(peer[0], self.proxies):
                await PlainTextResponse("Only web.proxies may connect.", 403)(scope, receive, send)
                return
            scope = {**scope, "client": _client(scope, headers, self.proxies)}
            if headers.get("host", "").lower() in hosts_of(self.public_url):
                scope["scheme"] = urlsplit(self.public_url).scheme
        await self.app(scope, receive, send)


def is_proxy(peer: str, proxies: Proxies) -> bool:
    """Whether the address is this machine's own or a proxy's; raises `ValueError` if it isn't an address."""
    address = ip_address(peer)
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_loopback or any(address in network for network in proxies)


def _client(scope: Scope, headers: Headers, proxies: Proxies) -> tuple[str, int] | None:
    """The client that a proxy named; the peer itself if there is no valid name."""
    peer: tuple[str, int] | None = scope.get("client")
    hops = ",".join(headers.getlist("x-forwarded-for")).split(",")
    try:
        return next(((hop.strip(), 0) for hop in reversed(hops) if not is_proxy(hop.strip(), proxies)), peer)
    except ValueError:
        return peer

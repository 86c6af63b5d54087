"""The page's own address and cookie, and whether a request comes from a page of another address."""

from starlette.requests import Request

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITE = frozenset({None, "same-origin", "none"})
_COOKIES = ("claw", "__Host-claw")


def page_url(base: str, name: str) -> str:
    """`base` with the page's own host name in the place of a loopback one.

    A browser sends the cookies of a host to all of its ports, those of other programs included; nobody can guess this
    host.
    """
    scheme, _, rest = base.rstrip("/").partition("://")
    host, _ = split_host(rest)
    return f"{scheme}://{name + rest[len(host) :] if scheme == 'http' and host in LOOPBACK else rest}"


def split_host(host: str) -> tuple[str, str]:
    """Split a Host header into name and port; an IPv6 name keeps its brackets, a missing port is empty."""
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and not port.endswith("]") else (host, "")


def cookie_name(request: Request) -> str:
    """The session cookie's name; the strict `__Host-` prefix needs https, which loopback does not use."""
    return _COOKIES[request.url.scheme == "https"]


def has_cookie(request: Request) -> bool:
    """Whether it carries a session cookie, valid or not, which a browser adds to what any page sends."""
    return any(name in request.cookies for name in _COOKIES)


def is_foreign(request: Request) -> bool:
    """Whether another page may have sent this; a program that is no browser tells nothing of pages and has a token."""
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

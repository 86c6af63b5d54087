"""Web pages: one GET, with its redirects."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from importlib import import_module
from pathlib import PurePosixPath
from types import ModuleType
from typing import TYPE_CHECKING
from urllib.parse import unquote

from gateway.net.addresses import Rules, Target, parse_url, redirect_target
from gateway.net.errors import NetError, status_error

if TYPE_CHECKING:
    from ssl import SSLContext

    from httpx2 import AsyncClient, Response

    from gateway.net.client import Limits

MAX_REDIRECTS = 5
_SECONDS = 30.0
"""For all redirects together."""


@dataclass(frozen=True, slots=True)
class WebPage:
    """The page at an address. All of it is the words of `url`'s host; `name` is a file name, "" if it has none."""

    url: str
    mime: str
    charset: str
    name: str
    body: bytes


async def get_page(
    url: str,
    rules: Rules,
    limits: "Limits | None" = None,
    headers: Mapping[str, str] | None = None,
    trusted: "SSLContext | None" = None,
    may_follow: Callable[[str], bool] | None = None,
) -> WebPage:
    """Fetch the page at this address, or where it redirects; raises `NetError`, also for an error status.

    `headers` may hold credentials: they go to the origin of `url` and are dropped at the first other one.
    `may_follow` decides on each further address; None follows wherever the rules allow.
    """
    target = parse_url(url)
    client = await asyncio.to_thread(load_client)
    guarded = client.guarded(lambda: rules, limits or client.PAGE, trusted=trusted)
    until = asyncio.get_running_loop().time() + _SECONDS
    async with guarded as http, client.within(until, target.host):
        with client.translated_errors(target.host):
            return await _followed(http, target, headers or {}, may_follow)


def load_client() -> ModuleType:
    """Import the module `client`, and httpx2 with it, and read the certificates; slow, so run it in a thread."""
    client = import_module("gateway.net.client")
    client.certificates()
    return client


def redirection(response: "Response") -> str | None:
    """The target of a redirect, as it is written; None if the response isn't one."""
    location: str | None = response.headers.get("Location")
    return location if response.status_code in (301, 302, 303, 307, 308) else None


async def _followed(
    http: "AsyncClient", target: Target, headers: Mapping[str, str], may_follow: Callable[[str], bool] | None
) -> WebPage:
    for hop in range(MAX_REDIRECTS + 1):
        try:
            async with http.stream("GET", target.url, headers=headers, follow_redirects=False) as response:
                if (location := redirection(response)) is None:
                    return await _read(target, response)
        except NetError as error:
            error.foreign = hop > 0
            raise
        following = redirect_target(target, location)
        if may_follow is not None and not may_follow(following.url):
            raise NetError("redirected", f"{target.host} redirects to where this request may not go; it wasn't sent.")
        headers = headers if following.origin == target.origin else {}
        target = following
    raise NetError("too_many_redirects", f"{target.host} redirects more than {MAX_REDIRECTS} times; it was not read.")


async def _read(target: Target, response: "Response") -> WebPage:
    status = response.status_code
    if status >= 400 or status < 200:
        raise status_error(target.host, status)
    body = b"".join([piece async for piece in response.aiter_raw()])
    head = Message()
    head["Content-Type"] = response.headers.get("Content-Type", "")
    head["Content-Disposition"] = response.headers.get("Content-Disposition", "")
    name = head.get_filename() or unquote(PurePosixPath(target.rest.partition("?")[0]).name)
    mime = head.get_content_type() if head["Content-Type"] else ""
    return WebPage(target.url, mime, str(head.get_content_charset() or ""), name[:200], body)

"""A page made of pieces that say how things stand: drawn again now and then, and sent where a piece changed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TypeAlias

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from gateway.domain.errors import TryAgainLater
from gateway.web.access import by_cookie
from gateway.web.live import EventStream, Frame
from gateway.web.nav import Nav
from gateway.web.patches import Fill, difference, encoded
from gateway.web.site import Site

LOOK_SECONDS = 1.0

Draw: TypeAlias = Callable[[], Awaitable[Mapping[str, str]]]
"""The pieces as they are now, by the id of their element, in order; `empty` is the first and always there."""


async def page(request: Request, site: Site, nav: Nav, draw: Draw) -> Response:
    """The screen as it is now; whoever is not signed in is shown how to."""
    if await by_cookie(request) is None:
        return RedirectResponse("/login", 303)
    pieces = (await draw()).values()
    return site.pages.page(request, "board.html", title=nav.label, nav=site.nav, here=nav.path, pieces=pieces)


def events(site: Site, draw: Draw) -> Response:
    """What changes on it, as it changes."""
    return EventStream(follow(draw), site.stopping)


async def follow(draw: Draw) -> AsyncGenerator[Frame, None]:
    """The whole, then every change, for ever; while the database is away nothing changes."""
    shown: Mapping[str, str] = {}
    while True:
        try:
            now = await draw()
        except TryAgainLater:
            now = shown
        if not shown and now:
            yield Frame(encoded([Fill("board", "".join(now.values()))]))
        elif patches := difference(shown, now):
            yield Frame(encoded(patches))
        shown = now
        await asyncio.sleep(LOOK_SECONDS)

"""A page made of pieces that say how things stand: drawn again now and then, and sent where a piece changed."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import TypeAlias

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response

from gateway.domain.errors import TryAgainLater
from gateway.web.access import by_cookie, signed_in
from gateway.web.live import EventStream, Frame
from gateway.web.pages import Screen
from gateway.web.patches import Patch, difference, encoded
from gateway.web.site import AtSite, Site

LOOK_SECONDS = 1.0

Draw: TypeAlias = Callable[[], Awaitable[Mapping[str, str]]]
"""The pieces as they are now, by the id of their element, in order; `empty` is the first and always there."""


def add_routes(screen: Screen, draw: Callable[[Site], Awaitable[Mapping[str, str]]]) -> None:
    """The page of a screen, and the events that keep it as things stand."""
    nav = screen.nav

    @screen.router.get(nav.path)
    async def page(request: Request, site: AtSite) -> Response:
        """The screen as it is now; whoever is not signed in is shown how to."""
        if await by_cookie(request) is None:
            return RedirectResponse("/login", 303)
        pieces = (await draw(site)).values()
        return site.pages.page(request, "board.html", title=nav.label, nav=site.nav, here=nav.path, pieces=pieces)

    @screen.router.get(f"{nav.path}/events", dependencies=[Depends(signed_in)])
    async def events(site: AtSite) -> Response:
        """What changes on it, as it changes."""
        return EventStream(follow(lambda: draw(site)), site.stopping)


async def follow(draw: Draw) -> AsyncGenerator[Frame, None]:
    """The whole, then every change, for ever; while the database is away nothing changes."""
    shown: Mapping[str, str] = {}
    while True:
        try:
            now = await draw()
        except TryAgainLater:
            now = shown
        if not shown and now:
            yield Frame(encoded([Patch("fill", "board", "".join(now.values()))]))
        elif patches := difference(shown, now):
            yield Frame(encoded(patches))
        shown = now
        await asyncio.sleep(LOOK_SECONDS)

"""A live status page made of pieces: redrawn at intervals; only changed pieces are sent."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Annotated, TypeAlias

from fastapi import Depends, Request
from fastapi.responses import RedirectResponse, Response

from gateway.domain.errors import TryAgainLater
from gateway.web.auth.access import Caller, by_cookie, public, signed_in
from gateway.web.live.sse import EventStream, Frame, Patch, difference, encoded_patches
from gateway.web.pages import Screen
from gateway.web.site import AtSite, Site

POLL_SECONDS = 1.0

Draw: TypeAlias = Callable[[], Awaitable[Mapping[str, str]]]
"""Renders the current pieces, in order, by element id; `empty` is always the first."""


def add_routes(
    screen: Screen, draw: Callable[[Site], Awaitable[Mapping[str, str]]], template: str = "board.html", **shown: object
) -> None:
    """Add a screen's page and the event stream that keeps it up to date; `shown` is for the rest of its template."""
    nav = screen.nav

    @screen.router.get(nav.path, dependencies=[Depends(public)])
    async def page(request: Request, site: AtSite) -> Response:
        if await by_cookie(request) is None:
            return RedirectResponse("/login", 303)
        pieces = (await draw(site)).values()
        return site.screen(request, nav, template, pieces=pieces, **shown)

    @screen.router.get(f"{nav.path}/events")
    async def events(site: AtSite, caller: Annotated[Caller, Depends(signed_in)]) -> Response:
        return EventStream(follow(lambda: draw(site)), site.rights.hold(caller.session))


async def follow(draw: Draw) -> AsyncGenerator[Frame, None]:
    """Yield the whole page, then every change, for ever; nothing while the database is down."""
    shown: Mapping[str, str] = {}
    while True:
        try:
            now = await draw()
        except TryAgainLater:
            now = shown
        if not shown and now:
            yield Frame(encoded_patches([Patch("fill", "board", "".join(now.values()))]))
        elif patches := difference(shown, now):
            yield Frame(encoded_patches(patches))
        shown = now
        await asyncio.sleep(POLL_SECONDS)

"""The routes of a board: a screen made of pieces that follow what happens."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated

from fastapi import Depends, Request
from fastapi.responses import Response

from gateway.web.auth.access import VISITOR, Caller, signed_in
from gateway.web.live.sse import EventStream
from gateway.web.pages import Screen
from gateway.web.site import AtSite, Site


def add_routes(
    screen: Screen, draw: Callable[[Site], Awaitable[Mapping[str, str]]], template: str = "board.html", **shown: object
) -> None:
    """Add a screen's page and the event stream that keeps it up to date; `shown` is for the rest of its template."""
    nav = screen.nav

    @screen.router.get(nav.path, dependencies=VISITOR)
    async def page(request: Request, site: AtSite) -> Response:
        pieces = (await draw(site)).values()
        return site.screen(request, nav, template, pieces=pieces, **shown)

    @screen.router.get(f"{nav.path}/events")
    async def events(site: AtSite, caller: Annotated[Caller, Depends(signed_in)]) -> Response:
        frames = site.boards.follow(nav.path, lambda: draw(site))
        return EventStream(frames, site.rights.hold(caller.session))

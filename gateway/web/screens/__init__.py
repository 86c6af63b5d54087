"""Screens, one per file: each module here offers a `screen`; many are boards, whose pieces follow what happens."""

from collections.abc import Awaitable, Callable, Mapping

from fastapi import Request
from fastapi.responses import Response

from gateway.config.plugins import offers
from gateway.web.auth.access import VISITOR, SignedIn
from gateway.web.live.sse import EventStream
from gateway.web.pages import Screen
from gateway.web.site import AtSite, Site


def discover() -> tuple[Screen, ...]:
    """Every screen, in the order of the sidebar."""
    screens: list[Screen] = [screen for _, screen in offers(__name__, "screen", Screen)]
    return tuple(sorted(screens, key=lambda screen: screen.place))


def add_board(
    screen: Screen, draw: Callable[[Site], Awaitable[Mapping[str, str]]], template: str = "board.html", **shown: object
) -> None:
    """Add a screen's page and the event stream that keeps it up to date; `shown` is for the rest of its template."""

    @screen.get(screen.path, dependencies=VISITOR)
    async def page(request: Request, site: AtSite) -> Response:
        pieces = (await draw(site)).values()
        return site.screen(request, screen, template, pieces=pieces, **shown)

    @screen.get(f"{screen.path}/events")
    async def events(site: AtSite, caller: SignedIn) -> Response:
        frames = site.boards.follow(screen.path, lambda: draw(site))
        return EventStream(frames, site.rights.hold(caller.session))

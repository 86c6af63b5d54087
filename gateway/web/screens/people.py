"""People: who asks to be let in, who was, and the owner's answer."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from gateway.web import board
from gateway.web.access import Caller, signed_in
from gateway.web.nav import Nav, Screen
from gateway.web.site import AtSite, Site

router = APIRouter()
screen = Screen(Nav("/people", "People", "users", 10), router)
SignedIn = Annotated[Caller, Depends(signed_in)]


@router.get("/people")
async def page(request: Request, site: AtSite) -> Response:
    """The screen; whoever is not signed in is shown how to."""
    return await board.page(request, site, screen.nav, lambda: _pieces(site))


@router.get("/people/events")
async def events(site: AtSite, _caller: SignedIn) -> Response:
    """Patches for the page."""
    return board.events(site, lambda: _pieces(site))


@router.post("/people/{code}/approve", status_code=204)
async def approve(site: AtSite, _caller: SignedIn, code: str) -> None:
    """Let in whoever has this code; the page learns of it by its events."""
    await site.backend.pairing.approve(code)


@router.post("/people/{which}/deny", status_code=204)
async def deny(site: AtSite, _caller: SignedIn, which: str) -> None:
    """Turn down a request by its code, or take back what was allowed by its number."""
    await site.backend.pairing.deny(which)


async def _pieces(site: Site) -> Mapping[str, str]:
    asking, admitted = await site.backend.pairing.open_requests(), await site.backend.pairing.admitted()
    made: dict[str, str] = {"empty": site.pages.part("nobody")}
    if asking:
        made["asking"] = site.pages.part("heading", "asking", "Waiting for your answer")
        made |= {f"asks{row.id}": site.pages.part("asks", f"asks{row.id}", row) for row in asking}
    if admitted:
        made["admitted"] = site.pages.part("heading", "admitted", "Let in")
        made |= {f"in{row.id}": site.pages.part("let_in", f"in{row.id}", row) for row in admitted}
    return made

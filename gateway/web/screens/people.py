"""People: who asks to be let in, who was, and the owner's answer."""

from collections.abc import Mapping

from fastapi import APIRouter, Depends

from gateway.web import board
from gateway.web.access import signed_in
from gateway.web.pages import Nav, Screen
from gateway.web.site import AtSite, Site

router = APIRouter()
screen = Screen(Nav("/people", "People", "users", 10), router)


@router.post("/people/{code}/approve", status_code=204, dependencies=[Depends(signed_in)])
async def approve(site: AtSite, code: str) -> None:
    """Let in whoever has this code; the page learns of it by its events."""
    await site.backend.pairing.approve(code)


@router.post("/people/{which}/deny", status_code=204, dependencies=[Depends(signed_in)])
async def deny(site: AtSite, which: str) -> None:
    """Turn down a request by its code, or take back what was allowed by its number."""
    await site.backend.pairing.deny(which)


async def _pieces(site: Site) -> Mapping[str, str]:
    asking, admitted = await site.backend.pairing.open_requests(), await site.backend.pairing.admitted()
    made: dict[str, str] = {"empty": site.pages.part("nobody")}
    for number, line in enumerate(site.backend.unsettled()):
        made[f"unsettled{number}"] = site.pages.part("unsettled", f"unsettled{number}", line)
    if asking:
        made["asking"] = site.pages.part("heading", "asking", "Waiting for your answer")
        made |= {f"asks{row.id}": site.pages.part("asks", f"asks{row.id}", row) for row in asking}
    if admitted:
        made["admitted"] = site.pages.part("heading", "admitted", "Let in")
        made |= {f"in{row.id}": site.pages.part("let_in", f"in{row.id}", row) for row in admitted}
    return made


board.add_routes(screen, _pieces)

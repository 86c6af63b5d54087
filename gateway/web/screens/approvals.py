"""Approvals: what the agent asks its owner, with the whole of each change."""

from collections.abc import Mapping
from typing import Literal

from fastapi import APIRouter, Depends

from gateway.agent.approvals import settle
from gateway.domain.diff import legible
from gateway.store import reviews
from gateway.web import board
from gateway.web.access import signed_in
from gateway.web.pages import Nav, Screen
from gateway.web.site import AtSite, Site

router = APIRouter()
screen = Screen(Nav("/approvals", "Approvals", "circle-alert", 5), router)


@router.post("/approvals/{number}/{answer}", status_code=204, dependencies=[Depends(signed_in)])
async def settle_question(site: AtSite, number: str, answer: Literal["approve", "deny"]) -> None:
    """Allow or refuse a change; the page learns of it by its events."""
    owner, now, yes = site.backend.owner.id, site.backend.clock.now(), answer == "approve"
    await site.backend.database.run(lambda tx: settle(tx, owner, number, now, yes=yes, by="web"))


async def _pieces(site: Site) -> Mapping[str, str]:
    async with site.backend.database.connection() as conn:
        rows = await reviews.list_open(conn, site.backend.owner.id, site.backend.clock.now())
    made: dict[str, str] = {"empty": site.pages.part("no_questions")}
    return made | {row.name: site.pages.part("question", row.name, row, legible(row.preview)) for row in rows}


board.add_routes(screen, _pieces)

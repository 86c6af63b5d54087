"""Approvals: open questions to the owner with the whole call, earlier answers, and grants."""

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import Form

from gateway.agent.work import approvals as rules
from gateway.agent.work.approvals import settle_review, why_asked
from gateway.domain.conversation.diff import legible
from gateway.flow.people import OWNER_PAGE
from gateway.store.trust import grants, reviews
from gateway.web.auth.access import OWNER
from gateway.web.live.entries import asked_in, question_cards
from gateway.web.pages import Screen
from gateway.web.screens import add_board
from gateway.web.site import AtSite, Site

HISTORY = 50

screen = Screen("/approvals", "Approvals", "circle-alert", 10)


@screen.get("/approvals/waiting", dependencies=OWNER)
async def waiting(site: AtSite) -> dict[str, int]:
    """The number of open questions, for the sidebar and the title of every page."""
    async with site.database.connection() as conn:
        return {"waiting": len(await reviews.list_open(conn, site.owner.id, site.clock.now()))}


@screen.post("/approvals/{number}/grant", status_code=204, dependencies=OWNER)
async def allow_ahead(site: AtSite, number: str, terms: Annotated[str, Form(max_length=200)]) -> None:
    """Grant more calls like this one in advance."""
    owner, parsed = site.owner.id, rules.parse_terms(terms, site.clock.now())
    await site.database.run(lambda tx: rules.give_grant(tx, owner, number, parsed, by="web"))


@screen.post("/approvals/grants/{number}/revoke", status_code=204, dependencies=OWNER)
async def revoke(site: AtSite, number: str) -> None:
    """Revoke a grant."""
    owner, now = site.owner.id, site.clock.now()
    await site.database.run(lambda tx: rules.revoke_grant(tx, owner, number, now, by="web"))


@screen.post("/approvals/{number}/{answer}", status_code=204, dependencies=OWNER)
async def settle_question(
    site: AtSite, number: str, answer: Literal["approve", "deny"], comment: Annotated[str, Form(max_length=2_000)] = ""
) -> None:
    """Approve or deny a call; the pages are updated by their events."""
    owner, now, yes = site.owner.id, site.clock.now(), answer == "approve"
    await site.database.run(lambda tx: settle_review(tx, owner, number, now, yes=yes, by="web", comment=comment))
    await site.conversations.refresh(OWNER_PAGE)  # an answer to a task comes back as no message


async def _pieces(site: Site) -> Mapping[str, str]:
    owner, now, part = site.owner.id, site.clock.now(), site.pages.part
    async with site.database.connection() as conn:
        rows, over = await reviews.list_open(conn, owner, now), await reviews.latest(conn, owner, HISTORY)
        ahead, channels = await grants.live(conn, owner, now), await reviews.askers(conn, rows + over)
    made: dict[str, str] = {"empty": part("no_questions"), **question_cards(site.pages, rows, channels)}
    if ahead:
        made["ahead"] = part("heading", "ahead", "Allowed in advance")
    made |= {row.name: part("grant", row.name, row, rules.grant_line(row)) for row in ahead}
    if over:
        made["history"] = part("heading", "history", "Answered")
    for row in over:
        made[row.name] = part("answered", row.name, row, legible(row.preview), why_asked(row), asked_in(row, channels))
    return made


add_board(screen, _pieces)

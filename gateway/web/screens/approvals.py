"""The inbox: approvals with the whole call, questions of tasks, requests, failed deliveries; answers and grants."""

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import Form
from fastapi.responses import RedirectResponse

from gateway.agent.work import approvals as rules
from gateway.agent.work.approvals import settle_review, why_asked
from gateway.domain.conversation.diff import legible
from gateway.domain.ids import OutboxId
from gateway.flow.channels.monitoring import OPEN
from gateway.store.delivery import outbox
from gateway.store.trust import grants, reviews
from gateway.web.auth.access import OWNER, VISITOR
from gateway.web.http.errors import Refused
from gateway.web.live.entries import asked_in, question_cards
from gateway.web.pages import Screen
from gateway.web.screens import add_board, people
from gateway.web.site import AtSite, RowId, Site

HISTORY = 50
WELL = frozenset({OPEN, "opening", "disabled"})

screen = Screen("/inbox", "Inbox", "circle-alert", 10)
screen.add_api_route("/approvals", lambda: RedirectResponse(screen.path, 308), dependencies=VISITOR)


@screen.get("/inbox/waiting", dependencies=OWNER)
async def waiting(site: AtSite) -> dict[str, int | bool]:
    """How many cards wait, for the sidebar and the title of every page, and whether all is well."""
    asking = await people.requests(site)
    async with site.database.connection() as conn:
        open = await reviews.list_open(conn, site.owner.id, site.clock.now())
        failed = await outbox.undelivered(conn, site.owner.id)
    well = site.health.healthy() and all(state in WELL for state in site.channels.states().values())
    return {"waiting": len(open) + len(failed) + len(asking.keys() - {"joining", "asking"}), "well": well}


@screen.post("/inbox/deliveries/{row}", status_code=204, dependencies=OWNER)
async def send_again(site: AtSite, row: RowId) -> None:
    """Try a failed delivery once more."""
    owner = site.owner.id
    if not await site.database.run(lambda tx: outbox.send_again(tx, owner, OutboxId(row))):
        raise Refused(409, "not_failed", "There is nothing to send again.")
    site.signals.outbox.set()


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
    await site.topics.refresh()  # an answer to a task comes back as no message


async def _pieces(site: Site) -> Mapping[str, str]:
    owner, now, section = site.owner.id, site.clock.now(), site.pages.section
    async with site.database.connection() as conn:
        rows, over = await reviews.list_open(conn, owner, now), await reviews.latest(conn, owner, HISTORY)
        ahead, channels = await grants.live(conn, owner, now), await reviews.askers(conn, rows + over)
        failed = await outbox.undelivered(conn, owner)
    made: dict[str, str] = {"empty": site.pages.part("no_questions")}
    made |= {"questions": site.pages.part("heading", "questions", "Approvals and questions")} if rows else {}
    made |= question_cards(site.pages, rows, channels) | await people.requests(site)
    made |= section("failed", "Not delivered", "undelivered", {f"o{row.id}": (row,) for row in failed})
    lines = {row.name: (row, rules.grant_line(row)) for row in ahead}
    answers = {row.name: (row, legible(row.preview), why_asked(row), asked_in(row, channels)) for row in over}
    made |= section("ahead", "Allowed in advance", "grant", lines)
    return made | section("history", "Answered", "answered", answers)


add_board(screen, _pieces)

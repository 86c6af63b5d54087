"""People: access requests, people with access, and linked accounts."""

from collections.abc import Mapping
from hashlib import sha256

from gateway.store.people import tokens
from gateway.web.auth.access import OWNER
from gateway.web.pages import Screen
from gateway.web.screens import add_board
from gateway.web.site import AtSite, Site

screen = Screen("/people", "People", "users", 53)


@screen.post("/people/{code}/approve", status_code=204, dependencies=OWNER)
async def approve(site: AtSite, code: str) -> None:
    """Approve the access request with this code; the page is updated by its events."""
    await site.channels.pairing.approve(code)


@screen.post("/people/{which}/deny", status_code=204, dependencies=OWNER)
async def deny(site: AtSite, which: str) -> None:
    """Deny a request by its code, or revoke access by its number."""
    await site.channels.pairing.deny(which)


@screen.post("/people/joins/{code}", status_code=204, dependencies=OWNER)
async def answer(site: AtSite, code: str, join: bool) -> None:
    """Link the account that sent this code to the owner, or refuse to."""
    await site.channels.pairing.answer(code, join=join)


@screen.post("/people/accounts/part", status_code=204, dependencies=OWNER)
async def part(site: AtSite, identity: str) -> None:
    """Unlink an account from its person."""
    await site.channels.pairing.part(identity)


async def requests(site: Site) -> dict[str, str]:
    """The cards of linking and access requests, under their headings."""
    pairing, part = site.channels.pairing, site.pages.part
    made: dict[str, str] = {}
    if claims := await pairing.claims():
        made["joining"] = part("heading", "joining", "Linking requests")
        made |= {f"joins{row.code}": part("joins", f"joins{row.code}", row) for row in claims}
    if asking := await pairing.open_requests():
        made["asking"] = part("heading", "asking", "Access requests")
        made |= {f"asks{row.id}": part("asks", f"asks{row.id}", row) for row in asking}
    return made


async def _pieces(site: Site) -> Mapping[str, str]:
    pairing, part = site.channels.pairing, site.pages.part
    asking, admitted = await requests(site), await pairing.admitted()
    made: dict[str, str] = {} if asking or admitted else {"nobody": part("nobody")}
    for number, line in enumerate(site.channels.unsettled()):
        made[f"unsettled{number}"] = part("unsettled", f"unsettled{number}", line)
    made |= asking
    if admitted:
        made["admitted"] = part("heading", "admitted", "People with access")
        made |= {f"in{row.id}": part("let_in", f"in{row.id}", row) for row in admitted}
    for row in await pairing.accounts():
        if row.identities:
            made[f"of{row.id}"] = part("heading", f"of{row.id}", f"Accounts of {row.name}")
            accounts = ((f"at{sha256(each.encode()).hexdigest()}", each) for each in row.identities)
            made |= {id: part("account", id, each) for id, each in accounts}
    if programs := [row for row in await tokens.list_all(site.database) if row.as_owner]:
        made["programs"] = part("heading", "programs", "Programs that act as you")
        made |= {f"token{row.id}": part("program", f"token{row.id}", row) for row in programs}
    return made


add_board(screen, _pieces)

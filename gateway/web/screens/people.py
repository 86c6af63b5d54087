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
    pairing, section = site.channels.pairing, site.pages.section
    joins = {row.code: (row,) for row in await pairing.claims()}
    asks = {row.code: (row,) for row in await pairing.open_requests()}
    return section("joining", "Linking requests", "joins", joins) | section("asking", "Access requests", "asks", asks)


async def _pieces(site: Site) -> Mapping[str, str]:
    pairing, part, section = site.channels.pairing, site.pages.part, site.pages.section
    asking, admitted = await requests(site), {f"in{row.id}": (row,) for row in await pairing.admitted()}
    made: dict[str, str] = {} if asking or admitted else {"nobody": part("nobody", site.channels.states())}
    for number, line in enumerate(site.channels.unsettled()):
        made[f"unsettled{number}"] = part("unsettled", f"unsettled{number}", line)
    made |= asking | section("admitted", "People with access", "let_in", admitted)
    for row in await pairing.accounts():
        accounts = {f"at{sha256(each.encode()).hexdigest()}": (each,) for each in row.identities}
        made |= section(f"of{row.id}", f"Accounts of {row.name}", "account", accounts)
    programs = {f"token{row.id}": (row,) for row in await tokens.list_all(site.database) if row.as_owner}
    made |= section("programs", "Programs that act as you", "program", programs)
    return made if "nobody" in made else made | {"invite": part("invite", site.channels.states())}


add_board(screen, _pieces)

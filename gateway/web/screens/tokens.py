"""Tokens: the credentials of programs; only the owner creates and revokes them, here or in a terminal."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import structlog
from fastapi import Depends, Form
from fastapi.responses import HTMLResponse

from gateway.domain.people.credentials import SCOPE_WORDS, Scope, permits
from gateway.store.people import tokens
from gateway.web.auth.access import OWNER
from gateway.web.http.bodies import Name, Text
from gateway.web.http.errors import Refused, existing
from gateway.web.pages import Screen
from gateway.web.screens import add_board
from gateway.web.site import AtSite, Site
from gateway.workspace.files.paths import WorkspacePath

log = structlog.get_logger(__name__)
screen = Screen("/tokens", "Tokens", "key-round", 55)


@dataclass(frozen=True, slots=True)
class TokenForm:
    """The token that the form asks for."""

    name: Annotated[Name, Form()]
    scope: Annotated[list[Scope] | None, Form()] = None
    as_owner: Annotated[bool, Form()] = False
    agent: Annotated[str, Form(max_length=200)] = ""
    shared: Annotated[bool, Form()] = False
    folder: Annotated[str, Form(max_length=1_000)] = ""
    confirmed: Annotated[bool, Form()] = False

    def check(self) -> None:
        """Raise `Refused` for fields that do not go together."""
        held = set(self.scope or ())
        if not self.name.strip():
            raise Refused(400, "no_name", "Give the token a name.", param="name")
        if not held:
            raise Refused(400, "no_scope", "Choose what the token may do.", param="scope")
        if self.as_owner and not permits(held, Scope.CHAT):
            raise Refused(400, "no_chat", "A token that speaks as you has to talk: add chat.", param="as_owner")
        if (self.agent.strip() or self.shared) and not permits(held, Scope.MEMORY):
            raise Refused(400, "no_memory", "An agent's name and your memory take the scope memory.", param="agent")


@screen.post("/tokens", dependencies=OWNER)
async def create(site: AtSite, wanted: Annotated[TokenForm, Depends()]) -> HTMLResponse:
    """Create a token and show it once; one that speaks as the owner needs a confirmation first."""
    wanted.check()
    if wanted.as_owner and not wanted.confirmed:
        return HTMLResponse(site.pages.piece("token_new.html", wanted=wanted, plain=""))
    below = str(WorkspacePath.parse(wanted.folder.strip())) if wanted.folder.strip() else None
    new = partial(tokens.create, site.database, agent=wanted.agent.strip() or None, shared=wanted.shared, folder=below)
    row, plain = await new(site.owner.id, wanted.name, wanted.scope or (), as_owner=wanted.as_owner)
    log.info("web.token_created", name=row.name, scopes=row.scopes, as_owner=row.as_owner)
    return HTMLResponse(site.pages.piece("token_new.html", wanted=wanted, plain=plain))


@screen.post("/tokens/revoke", status_code=204, dependencies=OWNER)
async def revoke(site: AtSite, name: Annotated[Text, Form(max_length=1_000)]) -> None:
    """Revoke a token, and end its streams; the page is updated by its events."""
    ended = existing(await tokens.revoke(site.database, name), f"There is no token named {name}.")
    site.rights.look_again()
    log.info("web.token_revoked", name=name, ended=str(ended))


async def _pieces(site: Site) -> Mapping[str, str]:
    piece, rows = site.pages.piece, await tokens.list_all(site.database)
    made: dict[str, str] = {"empty": piece("token.html", row=None)}
    return made | {f"token{row.id}": piece("token.html", row=row) for row in rows}


add_board(screen, _pieces, "tokens.html", scopes=SCOPE_WORDS)

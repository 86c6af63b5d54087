"""Secrets: stored, replaced, bound and deleted here, never shown; only the owner's browser may."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import structlog
from fastapi import Depends, Form

from gateway.secrets.facts import MAX_VALUE, Binding
from gateway.web.auth.access import OWNER
from gateway.web.http.bodies import Name, Text
from gateway.web.http.errors import Refused, existing
from gateway.web.pages import Screen
from gateway.web.screens import add_board
from gateway.web.site import AtSite, Site

log = structlog.get_logger(__name__)
screen = Screen("/secrets", "Secrets", "lock", 54)


@dataclass(frozen=True, slots=True)
class SecretChoice:
    """One of the owner's secrets, or a shared one."""

    name: Annotated[Name, Form()]
    own: Annotated[bool, Form()] = False


@dataclass(frozen=True, slots=True)
class BindingForm:
    """The hosts and tools that a secret may be sent to, as typed: separated by commas or white space."""

    hosts: Annotated[Text, Form(max_length=4_000)] = ""
    tools: Annotated[Text, Form(max_length=4_000)] = ""
    kind: Annotated[str, Form(pattern="^(header|field)$")] = "header"
    place: Annotated[Text, Form(max_length=200)] = ""

    @property
    def binding(self) -> Binding:
        """The binding; raises `OwnerMustAct` if it isn't valid."""
        hosts, tools = (text.replace(",", " ").split() for text in (self.hosts, self.tools))
        return Binding.of(hosts, tools, f"{self.kind}:{self.place.strip()}" if self.place.strip() else "")


ASecret = Annotated[SecretChoice, Depends()]
ItsBinding = Annotated[BindingForm, Depends()]
ItsValue = Annotated[Text, Form(min_length=1, max_length=MAX_VALUE)]


@screen.post("/secrets", status_code=204, dependencies=OWNER)
async def store(site: AtSite, of: ASecret, value: ItsValue, bound: ItsBinding) -> None:
    """Store a new secret."""
    secrets = site.settings.secrets
    if await secrets.vault.holds(secrets.owner, of.name, shared=not of.own):
        raise Refused(409, "exists", f"There is a secret {of.name} already; rotate it.", param="name")
    await secrets.vault.put(secrets.owner, of.name, value, shared=not of.own, binding=bound.binding)
    await _done(site, of, "web.secret_stored")


@screen.post("/secrets/rotate", status_code=204, dependencies=OWNER)
async def rotate(site: AtSite, of: ASecret, value: ItsValue) -> None:
    """Replace the value; the binding stays."""
    secrets = site.settings.secrets
    if there := await secrets.vault.holds(secrets.owner, of.name, shared=not of.own):
        await secrets.vault.put(secrets.owner, of.name, value, shared=not of.own)
    await _done(site, of, "web.secret_rotated", there)


@screen.post("/secrets/bind", status_code=204, dependencies=OWNER)
async def bind(site: AtSite, of: ASecret, bound: ItsBinding) -> None:
    """Change the binding of a secret."""
    vault, owner = site.settings.secrets.vault, site.settings.secrets.owner
    await _done(site, of, "web.secret_bound", await vault.bind(owner, of.name, bound.binding, shared=not of.own))


@screen.post("/secrets/delete", status_code=204, dependencies=OWNER)
async def delete(site: AtSite, of: ASecret) -> None:
    """Delete a secret."""
    vault, owner = site.settings.secrets.vault, site.settings.secrets.owner
    await _done(site, of, "web.secret_deleted", await vault.remove(owner, of.name, shared=not of.own))


async def _done(site: Site, of: SecretChoice, event: str, there: bool = True) -> None:
    """Load the changed secret and log it; raises `Refused` if it isn't there."""
    existing(there or None, f"There is no secret {of.name}.")
    await site.settings.secrets.look()
    log.info(event, name=of.name, own=of.own)


async def _pieces(site: Site) -> Mapping[str, str]:
    secrets, piece = site.settings.secrets, site.pages.piece
    unconfirmed = bool(secrets.stored) and not await secrets.key_kept()
    made: dict[str, str] = {"empty": piece("secret.html", row=None)}
    if unconfirmed:
        made["keep"] = piece("secret.html", row=None, keep=True)
    for each in secrets.stored:
        facts = each.row.facts
        whose = "" if facts.shared else "yours" if facts.principal == secrets.owner else "a member's"
        shown = {"facts": facts, "whose": whose, "cover": secrets.hidden_by(facts), "problem": each.problem}
        made[f"secret{each.row.id}"] = piece("secret.html", row=each.row, **shown)
    return made


add_board(screen, _pieces, "secrets.html")

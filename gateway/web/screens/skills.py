"""Skills: what the agent can look up for certain tasks, what the scan found in each, and the owner's word on it."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Form
from fastapi.responses import HTMLResponse

from gateway.agent.skills.library import Listed, Look
from gateway.agent.skills.showing import changes, undecided
from gateway.domain.diff import legible
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.web import board
from gateway.web.access import signed_in
from gateway.web.errors import Refused
from gateway.web.fields import Text
from gateway.web.pages import Nav, Screen
from gateway.web.site import AtSite, Site
from gateway.workspace.skills.folder import MAX_FILE, BadSkill

OWNER = [Depends(signed_in)]

router = APIRouter()
screen = Screen(Nav("/skills", "Skills", "terminal", 45), router)


@router.post("/skills/install", status_code=204, dependencies=OWNER)
async def install(site: AtSite, source: Annotated[Text, Form(max_length=MAX_FILE)]) -> None:
    """Fetch and scan a skill; it waits on the page for the owner's word."""
    try:
        await site.backend.skills.stage(source.replace("\r\n", "\n"))
    except (OwnerMustAct, TryAgainLater):
        raise
    except SupaclawError as error:
        raise Refused(400, "no_skill", str(error), param="source") from error


@router.get("/skills/{name}/details", dependencies=OWNER)
async def details(site: AtSite, name: str) -> HTMLResponse:
    """Everything that a yes would cover, and the form for it."""
    found = await _known(site, name)
    files, before, _ = await undecided(site.backend.skills, name)
    look = await asyncio.to_thread(Look.at, files, name)
    text = legible("\n".join(await asyncio.to_thread(changes, before, files)))
    return HTMLResponse(site.pages.piece("skill_details.html", skill=found, look=look, text=text))


@router.post("/skills/{name}/confirm", status_code=204, dependencies=OWNER)
async def confirm(
    site: AtSite,
    name: str,
    sha256: Annotated[str, Form(max_length=64)],
    word: Annotated[Text, Form(max_length=100)] = "",
) -> None:
    """Switch on exactly the bytes that were shown; the extra word for severe findings is the skill's name."""
    await _known(site, name)
    await site.backend.skills.confirm(name, sha256, despite_findings=word.strip() == name)


@router.post("/skills/{name}/{act}", status_code=204, dependencies=OWNER)
async def change(site: AtSite, name: str, act: Literal["off", "dismiss", "remove"]) -> None:
    """Switch it off, forget the version that waits, or delete it and its files."""
    skills = site.backend.skills
    await _known(site, name)
    match act:
        case "off":
            await skills.disable(name)
        case "dismiss":
            await skills.dismiss(name)
        case "remove":
            await skills.remove(name)


async def _known(site: Site, name: str) -> Listed:
    try:
        return await site.backend.skills.get(name)
    except BadSkill as error:
        raise Refused(404, "not_found", str(error)) from error


async def _pieces(site: Site) -> Mapping[str, str]:
    every, piece = await site.backend.skills.list_all(), site.pages.piece
    made: dict[str, str] = {"empty": piece("skill.html", skill=None)}
    return made | {f"skill-{each.name}": piece("skill.html", skill=each) for each in every}


board.add_routes(screen, _pieces, "skills.html")

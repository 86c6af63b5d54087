"""Health: the findings of `supaclaw doctor` with their fixes; the checks run while the page is open."""

import asyncio
from collections.abc import AsyncGenerator

from fastapi import Request
from fastapi.responses import Response

from gateway.web.auth.access import OWNER, VISITOR, SignedIn
from gateway.web.live.sse import EventStream, Frame, Patch, to_json
from gateway.web.pages import Screen
from gateway.web.screens.jobs import job_pieces
from gateway.web.site import AtSite, Site

AGAIN_SECONDS = 300.0

screen = Screen("/checks", "Health", "activity", 57)


@screen.get("/checks", dependencies=VISITOR)
async def page(request: Request, site: AtSite) -> Response:
    """The screen; the findings come with the events."""
    return site.screen(request, screen, "board.html", pieces=[site.pages.piece("health.html", findings=None)])


@screen.post("/checks/update", status_code=204, dependencies=OWNER)
async def update(site: AtSite) -> None:
    """Install the newer version; the program that does it stops this gateway."""
    await asyncio.to_thread(site.health.update)


@screen.get("/checks/events")
async def events(site: AtSite, caller: SignedIn) -> Response:
    """The findings of one round of checks, then of every later one."""
    return EventStream(_rounds(site), site.rights.hold(caller.session))


async def _rounds(site: Site) -> AsyncGenerator[Frame, None]:
    while True:
        findings = await asyncio.to_thread(site.health.findings)
        jobs = list((await job_pieces(site)).values())[1:]
        piece = site.pages.piece("health.html", findings=findings, mask=site.health.mask.text, jobs=jobs)
        yield Frame(to_json([Patch("fill", "board", piece)]))
        await asyncio.sleep(AGAIN_SECONDS)

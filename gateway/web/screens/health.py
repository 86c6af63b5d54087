"""Health: the findings of `supaclaw doctor` with their fixes, and the gateway's own jobs, while the page is open."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from fastapi import Request
from fastapi.responses import RedirectResponse, Response

from gateway.web.auth.access import OWNER, VISITOR, SignedIn
from gateway.web.live.sse import EventStream, Frame, Patch, to_json
from gateway.web.pages import Screen
from gateway.web.site import AtSite, Site
from gateway.web.trace import seconds

AGAIN_SECONDS = 300.0

screen = Screen("/checks", "Health", "activity", 60)
screen.add_api_route("/jobs", lambda: RedirectResponse(f"{screen.path}#jobs", 308), dependencies=VISITOR)


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
        piece = site.pages.piece("health.html", findings=findings, mask=site.health.mask.text, jobs=_jobs(site))
        yield Frame(to_json([Patch("fill", "board", piece)]))
        await asyncio.sleep(AGAIN_SECONDS)


def _jobs(site: Site) -> Sequence[str]:
    """The rows of the gateway's own jobs, those whose last run failed first."""
    jobs = sorted(site.health.jobs().items(), key=lambda job: not (job[1].last and job[1].last.error))
    part = site.pages.part
    return [part("job", name, state, seconds(state.last.seconds) if state.last else "") for name, state in jobs]

"""Logs: the log of the gateway or of one session, as it happens."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from datetime import date
from itertools import count
from typing import Annotated, get_args

from fastapi import Depends, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gateway.domain.errors import OwnerMustAct
from gateway.logs.files import Level, Trail, at_least, event_of, find_session_trail, follow_lines, gateway_trail
from gateway.web.auth.access import VISITOR, Caller, signed_in
from gateway.web.live.sse import EventStream, Frame, Patch, encoded_patches
from gateway.web.pages import Screen
from gateway.web.site import AtSite, Site

POLL_SECONDS = 1.0
TAIL_BYTES = 2_000_000
MAX_LINES = 500

screen = Screen("/logs", "Logs", "scroll-text", 58)


class LogQuery(BaseModel):
    """The lines to show; without a session those of the whole gateway."""

    session: Annotated[str, Field(max_length=36)] = ""
    level: Level = "info"


@screen.get("/logs", dependencies=VISITOR)
async def page(request: Request, site: AtSite, query: Annotated[LogQuery, Query()]) -> Response:
    """The screen; the lines come with the events."""
    problem = ""
    try:
        await asyncio.to_thread(_trail, site, query)
    except OwnerMustAct as error:
        problem = str(error)
    return site.screen(request, screen, "logs.html", asked=query, levels=get_args(Level), problem=problem)


@screen.get("/logs/events")
async def events(
    site: AtSite, caller: Annotated[Caller, Depends(signed_in)], query: Annotated[LogQuery, Query()]
) -> Response:
    """The last lines, then every new one."""
    trail = await asyncio.to_thread(_trail, site, query)
    return EventStream(_tail(site, query, trail), site.rights.hold(caller.session))


async def _tail(site: Site, query: LogQuery, trail: Trail) -> AsyncGenerator[Frame, None]:
    look = follow_lines(trail, max([*trail.days(), date.min]), lambda: site.clock.now().date(), TAIL_BYTES)
    numbers, shown, piece = count(), deque[str](), site.pages.piece
    patches = [Patch("fill", "board", piece("logs_empty.html"))]
    while True:
        for event in await asyncio.to_thread(lambda: _events(next(look), query, site)):
            shown.append(f"line{next(numbers)}")
            patches.append(Patch("insert", "", piece("logs_line.html", id=shown[-1], event=event, asked=query)))
            if len(shown) > MAX_LINES:
                patches.append(Patch("remove", shown.popleft()))
        if patches:
            yield Frame(encoded_patches(patches))
            patches = []
        await asyncio.sleep(POLL_SECONDS)


def _events(lines: list[str], query: LogQuery, site: Site) -> list[Mapping[str, object]]:
    """The events to show, without secrets, including those learned after a line was written."""
    found = deque((event for line in lines if at_least(event := event_of(line), query.level)), MAX_LINES)
    return [{key: site.health.mask.value(value) for key, value in event.items()} for event in found]


def _trail(site: Site, query: LogQuery) -> Trail:
    folder, session = site.health.logs, query.session.strip()
    return find_session_trail(folder, session) if session else gateway_trail(folder)

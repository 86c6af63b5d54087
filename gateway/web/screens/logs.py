"""Logs: the log of the gateway or of one session, as it happens."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from itertools import count
from typing import Annotated, TypeAlias, get_args
from zoneinfo import ZoneInfo

from fastapi import Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, Field

from gateway.domain.errors import OwnerMustAct
from gateway.domain.work.schedules import UTC_ZONE
from gateway.logs.files import Event, Level, Trail, at_least, event_of, find_session_trail, follow_lines, gateway_trail
from gateway.web.auth.access import VISITOR, SignedIn
from gateway.web.live.sse import EventStream, Frame, Patch, to_json
from gateway.web.pages import Screen
from gateway.web.site import AtSite, Site

POLL_SECONDS = 1.0
TAIL_BYTES = 2_000_000
MAX_LINES = 500

screen = Screen("/logs", "Logs", "scroll-text", 58)


Time: TypeAlias = Annotated[datetime | None, BeforeValidator(lambda text: text or None)]
"""As a form sends it: in the owner's zone, and empty for none."""


class LogQuery(BaseModel):
    """The lines to show; without a session those of the whole gateway, without times from the last day on."""

    session: Annotated[str, Field(max_length=36)] = ""
    level: Level = "info"
    q: Annotated[str, Field(max_length=200)] = ""
    since: Time = None
    until: Time = None

    def covers(self, event: Event, zone: str) -> bool:
        """Whether the event is of this level and time."""
        if not at_least(event, self.level) or not (self.since or self.until):
            return at_least(event, self.level)
        at = _time(event, zone)
        since, until = (each and _aware(each, zone) for each in (self.since, self.until))
        return at is not None and (since is None or at >= since) and (until is None or at <= until)


def _aware(at: datetime, zone: str) -> datetime:
    return at if at.tzinfo else at.replace(tzinfo=ZoneInfo(zone))


def _time(event: Mapping[str, object], zone: str) -> datetime | None:
    """The time of a line in the zone; None for a damaged one."""
    with suppress(ValueError):
        return _aware(datetime.fromisoformat(str(event.get("timestamp"))), UTC_ZONE).astimezone(ZoneInfo(zone))
    return None


@screen.get("/logs", dependencies=VISITOR)
async def page(request: Request, site: AtSite, query: Annotated[LogQuery, Query()]) -> Response:
    """The screen; the lines come with the events."""
    problem = ""
    try:
        await asyncio.to_thread(_trail, site, query)
    except OwnerMustAct as error:
        problem = str(error)
    shown = {"asked": query, "levels": get_args(Level), "problem": problem, "zone": _zone(site)}
    return site.screen(request, screen, "logs.html", stream=request.url.query, **shown)


@screen.get("/logs/events")
async def events(site: AtSite, caller: SignedIn, query: Annotated[LogQuery, Query()]) -> Response:
    """The last lines, then every new one."""
    trail = await asyncio.to_thread(_trail, site, query)
    return EventStream(_tail(site, query, trail), site.rights.hold(caller.session))


async def _tail(site: Site, query: LogQuery, trail: Trail) -> AsyncGenerator[Frame, None]:
    zone, newest = _zone(site), max([*trail.days(), date.min])
    first = query.since and _aware(query.since, zone).astimezone(UTC).date()
    look = follow_lines(trail, first or newest, lambda: site.clock.now().date(), None if first else TAIL_BYTES)
    numbers, shown, piece = count(), deque[str](), site.pages.piece
    patches = [Patch("fill", "board", piece("logs_empty.html"))]
    while True:
        for event in await asyncio.to_thread(lambda: _events(next(look), query, site)):
            shown.append(f"line{next(numbers)}")
            at = _time(event, zone)
            line = piece("logs_line.html", id=shown[-1], event=event, asked=query, at=at, today=site.clock.now().date())
            patches.append(Patch("insert", "", line))
            if len(shown) > MAX_LINES:
                patches.append(Patch("remove", shown.popleft()))
        if patches:
            yield Frame(to_json(patches))
            patches = []
        await asyncio.sleep(POLL_SECONDS)


def _events(lines: list[str], query: LogQuery, site: Site) -> list[Mapping[str, object]]:
    """The events to show, without secrets, including those learned after a line was written."""
    zone, words, mask = _zone(site), query.q.lower().split(), site.health.mask.value
    events = (event for line in lines if query.covers(event := event_of(line), zone))
    hidden = ({key: mask(value) for key, value in event.items()} for event in events)
    return list(deque((event for event in hidden if _says(event, words)), MAX_LINES))


def _says(event: Mapping[str, object], words: Sequence[str]) -> bool:
    text = " ".join(f"{key}={value}" for key, value in event.items()).lower() if words else ""
    return all(word in text for word in words)


def _zone(site: Site) -> str:
    return site.zone or UTC_ZONE


def _trail(site: Site, query: LogQuery) -> Trail:
    folder, session = site.health.logs, query.session.strip()
    return find_session_trail(folder, session) if session else gateway_trail(folder)

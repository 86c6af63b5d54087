"""What the routes share: the gateway, and what the web keeps of its own while it runs."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from gateway.web.backend import Backend
from gateway.web.errors import Refused
from gateway.web.follow import Conversations
from gateway.web.pages import Nav, Pages
from gateway.web.throttle import Pace, Throttle
from gateway.web.topics import Topics

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Site:
    """One per app. `stopping` ends every open stream."""

    backend: Backend
    conversations: Conversations
    topics: Topics
    pages: Pages
    throttle: Throttle
    pace: Pace
    nav: tuple[Nav, ...]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def while_running(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What takes as long as a turn may take; raises `Refused` when the gateway stops before it is done."""
        done, stop = asyncio.ensure_future(work), asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({done, stop}, return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                return done.result()
            raise _stopping()
        finally:
            done.cancel()
            stop.cancel()
            await asyncio.gather(done, stop, return_exceptions=True)


def site_of(request: Request) -> Site:
    """The site this request came to."""
    site: Site = request.app.state.site
    return site


AtSite = Annotated[Site, Depends(site_of)]


def _stopping() -> Refused:
    # a client that tries again by itself would say the same thing twice, unless it sends a key
    message = "The gateway is restarting; the answer is being worked on. Ask again with the same Idempotency-Key."
    return Refused(503, "restarting", message, type="server_error", headers={"x-should-retry": "false"})

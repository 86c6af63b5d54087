"""What the routes share: the gateway, and the state of the web app."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request

from gateway.web.backend import Backend
from gateway.web.errors import Refused
from gateway.web.follow import Conversations
from gateway.web.pages import Nav, Pages
from gateway.web.throttle import Lookups, RateLimiter, Throttle
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
    rate_limiter: RateLimiter
    nav: tuple[Nav, ...]
    lookups: Lookups = field(default_factory=Lookups)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def while_running(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Await `work`, which may take as long as a turn; raises `Refused` if the gateway stops first."""
        done, stop = asyncio.ensure_future(work), asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({done, stop}, return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                return done.result()
            # without a key, a client that retries by itself would send the message twice
            message = "The gateway is restarting and still working on the answer. Retry with the same Idempotency-Key."
            raise Refused(503, "restarting", message, type="server_error", headers={"x-should-retry": "false"})
        finally:
            done.cancel()
            stop.cancel()
            await asyncio.gather(done, stop, return_exceptions=True)


def site_of(request: Request) -> Site:
    """The site that serves this request."""
    site: Site = request.app.state.site
    return site


AtSite = Annotated[Site, Depends(site_of)]

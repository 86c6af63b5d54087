"""Work that is to go on for ever, whatever goes wrong in it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import structlog

from gateway.domain.errors import TryAgainLater
from gateway.domain.work.tasks import backoff

STEADY_SECONDS = 60.0

log = structlog.get_logger(__name__)


async def kept_up(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do it until it returns; a defect in it, or an outage, is logged, and it starts again after 1, 3, 7 … 60 seconds.

    What went well for a minute starts again after one.
    """
    failures = 0
    while True:
        began = time.monotonic()
        try:
            return await work()
        except Exception as exc:
            failures = 1 if time.monotonic() - began > STEADY_SECONDS else failures + 1
            if isinstance(exc, TryAgainLater):
                log.warning("background.waits", work=name, error=str(exc), again_in=backoff(failures))
            else:
                log.exception("background.broken", work=name, again_in=backoff(failures))
            await asyncio.sleep(backoff(failures))


@dataclass(frozen=True, slots=True)
class Periodic:
    """Work done at once and then every so many seconds by the monotonic clock, which no one can set."""

    name: str
    every: float
    work: Callable[[], Awaitable[None]]

    async def run(self) -> None:
        """Until cancelled, or until it fails."""
        while True:
            await self.work()
            await asyncio.sleep(self.every)

"""Work that is to go on for ever, whatever goes wrong in it."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from gateway.domain.tasks import backoff

STEADY_SECONDS = 60.0

log = structlog.get_logger(__name__)


async def kept_up(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do it until it returns; a defect in it is logged, and it starts again after 1, 3, 7 … 60 seconds.

    What went well for a minute starts again after one.
    """
    failures = 0
    while True:
        began = time.monotonic()
        try:
            return await work()
        except Exception:
            failures = 1 if time.monotonic() - began > STEADY_SECONDS else failures + 1
            log.exception("background.broken", work=name, again_in=backoff(failures))
            await asyncio.sleep(backoff(failures))

"""A start on a full disk waits for room instead of ending."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import structlog

from gateway.config.durable import disk_full, has_room

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 30.0
TELL_EVERY = 60.0

log = structlog.get_logger("gateway")


async def with_room(serve: Callable[[], Awaitable[None]], stop: asyncio.Event, data: Path) -> None:
    """Serve; what ends because a disk is full begins again when there is room, until `stop` is set."""
    told_at, pause = -TELL_EVERY, FIRST_PAUSE
    while (why := await _without_room(serve)) is not None:
        if time.monotonic() - told_at >= TELL_EVERY:
            told_at = time.monotonic()
            log.error("gateway.waits_for_room", problem=why, hint=f"make room (64 MB) for {data}: it goes on by itself")
        while not stop.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), pause)
            if has_room(data):
                break
        if stop.is_set():
            return
        pause = min(2 * pause, LONGEST_PAUSE)


async def _without_room(serve: Callable[[], Awaitable[None]]) -> str | None:
    """What of `serve` found a disk full; None once it is done."""
    try:
        await serve()
    except Exception as error:
        if (full := disk_full(error)) is None:
            raise
        return str(full).partition("\n")[0]
    return None

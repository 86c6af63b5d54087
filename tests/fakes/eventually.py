"""Waiting for what nothing announces."""

import asyncio
from collections.abc import Callable


async def eventually(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    """Return as soon as it holds."""
    async with asyncio.timeout(seconds):
        while True:
            if holds():
                return
            await asyncio.sleep(0.01)

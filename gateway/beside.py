"""Asyncio work beside other work, with which it ends, up to a time, or at the end of a block."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

Value = TypeVar("Value")


@asynccontextmanager
async def beside(
    work: Coroutine[object, object, Value], name: str | None = None, within: float | None = None
) -> AsyncIterator[asyncio.Task[Value]]:
    """Run `work` during the block, then cancel it and wait for its end, at most for `within` seconds."""
    task = asyncio.create_task(work, name=name)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=within)


async def cancel(*running: "asyncio.Future[Any]") -> None:
    """Cancel them, and wait for their ends."""
    for each in running:
        each.cancel()
    await asyncio.gather(*running, return_exceptions=True)


@asynccontextmanager
async def at_most(seconds: float | None) -> AsyncIterator[None]:
    """Leave the block after so many seconds, if it has not ended by then; None: never."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            yield


@asynccontextmanager
async def afterwards(*ends: Callable[[], Awaitable[object]]) -> AsyncIterator[None]:
    """Await these calls, in order, when the block has ended, however it ends."""
    try:
        yield
    finally:
        for end in ends:
            await end()

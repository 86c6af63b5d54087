"""Checks locked text after every tool run: a change between runs is the owner's, one in a run is not."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from gateway.workspace.locks.keeper import Keeper
from gateway.workspace.tree import Workspace

Tell: TypeAlias = Callable[[Sequence[str]], Awaitable[None]]
"""Tells the owner in which files locked text was put back."""


class LockWatch:
    """Of one workspace. `tell` never raises."""

    def __init__(self, workspace: Workspace, keeper: Keeper, tell: Tell) -> None:
        self._workspace, self._keeper, self._tell = workspace, keeper, tell
        workspace.accept = keeper.accept
        self._turning = asyncio.Lock()
        self._running = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[list[str], None]:
        """Hold this while a tool runs, and as long as a process lives that one has started.

        A change of locked text meanwhile is put back; after the block the list has the paths of those files.
        """
        restored: list[str] = []
        async with self._turning:
            if not self._running:
                await self._workspace.in_writer(self._keeper.renew)
            self._running += 1
        try:
            yield restored
        finally:
            await asyncio.shield(self._ended(restored))

    async def files(self) -> tuple[str, ...]:
        """The files that have locked text, from the workspace root: read-only for any command that runs."""
        async with self._turning:
            await self._workspace.in_writer(self._keeper.find)
        return self._keeper.paths

    @property
    def paths(self) -> tuple[str, ...]:
        """Those that are known by now."""
        return self._keeper.paths

    @asynccontextmanager
    async def between_runs(self) -> AsyncGenerator[bool, None]:
        """Whether no tool runs, so that what is locked is the owner's; none begins before the end of the block."""
        async with self._turning:
            yield not self._running

    async def check(self) -> Sequence[str]:
        """Put back what was changed while tools run; returns the paths. Without one it is the owner's."""
        async with self._turning:
            restored = await self._workspace.in_writer(self._keeper.check) if self._running else ()
        if restored:
            await self._tell(restored)
        return restored

    async def _ended(self, restored: list[str]) -> None:
        try:
            restored += await self.check()
        finally:
            self._running -= 1

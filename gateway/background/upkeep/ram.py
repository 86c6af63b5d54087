"""The memory of the process; above a ceiling it drops caches and claims fewer runs at once."""

import asyncio
import ctypes
import gc
import resource
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from gateway.config.machine import available_memory
from gateway.domain.errors import TryAgainLater
from gateway.domain.health import MemoryUse
from gateway.flow.signals import Signals
from gateway.logs.errors import logged

ENOUGH = 384 * 2**20
"""Bytes that the gateway needs at once with every SDK loaded."""

_STATM = Path("/proc/self/statm")


def resident() -> int:
    """The bytes of this process in memory; without /proc, the most it ever had."""
    with suppress(OSError):
        return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def ceiling(memory_mb: int | None) -> int:
    """The configured ceiling in bytes, else half of the memory of the machine or container, but at least `ENOUGH`."""
    return max(available_memory() // 2, ENOUGH) if memory_mb is None else memory_mb * 2**20


def trim() -> None:
    """Return freed memory to the system if the C library can (glibc); may take a while."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


RELIEVED = 0.85
"""The part of the ceiling below which an episode ends."""
RUNS_WHILE_SHEDDING = 4

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class MemoryCeiling:
    """Limits the memory of this process. Messages are not lost: they are stored, and wait longer for their turn.

    It publishes `memory_low`; `limit` caps the runs claimed at once; `tell` sends a message to the owner.
    """

    ceiling: Callable[[], int]
    signals: Signals
    limit: Callable[[int | None], None]
    tell: Callable[[str], Awaitable[None]]
    used: Callable[[], int] = resident
    memory: MemoryUse | None = field(default=None, init=False)
    """The memory at the last look; None before the first."""
    _told: bool = field(default=False, init=False)

    async def look(self) -> None:
        """Free memory at every look above the ceiling; an episode ends well below it."""
        before = self.memory is not None and self.memory.shedding
        used, ceiling = self.used(), self.ceiling()
        shedding = used >= ceiling or (before and used >= RELIEVED * ceiling)
        self.memory = now = MemoryUse(used, ceiling, shedding)
        if shedding is not before:
            self._change_state(now)
        if used >= ceiling:
            await self._free_memory(thoroughly=not before)
        if shedding and not self._told:
            await self._tell_owner(now)

    def _change_state(self, now: MemoryUse) -> None:
        """Begin or end an episode."""
        event = "memory.shedding" if now.shedding else "memory.relieved"
        log.warning(event, used_mb=_mb(now.used), ceiling_mb=_mb(now.ceiling))
        self._told = False
        self.limit(RUNS_WHILE_SHEDDING if now.shedding else None)

    async def _free_memory(self, *, thoroughly: bool) -> None:
        self.signals.memory_low.publish(None)
        if thoroughly:  # in this thread, since finalizers of transports call their event loop; slow, so once an episode
            gc.collect()
        await asyncio.to_thread(trim)

    async def _tell_owner(self, now: MemoryUse) -> None:
        with logged(log, "memory.not_told", TryAgainLater):
            await self.tell(
                f"I use {_mb(now.used)} MB of memory; my ceiling is {_mb(now.ceiling)} MB (limits.memory_mb). Until I "
                f"am well below it, {RUNS_WHILE_SHEDDING} chats at most are answered at once; the others wait, none is "
                "lost."
            )
            self._told = True


def _mb(size: int) -> int:
    return size // 2**20

"""The machine we run on: its clocks, and the memory that it, or the container that limits it, has."""

import asyncio
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

_CGROUP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def available_memory(cgroup: Path = _CGROUP, mount: Path = _MOUNT) -> int:
    """Bytes of the machine, or of the narrowest control group around us."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_memory_limits(cgroup, mount)])


def _memory_limits(cgroup: Path, mount: Path) -> Iterator[int]:
    """Of our group and every group around it, by cgroup v2 or v1."""
    with suppress(OSError):
        for line in cgroup.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _upwards(mount, path, "memory.max")
            elif "memory" in controllers.split(","):
                yield from _upwards(mount / "memory", path, "memory.limit_in_bytes")


def _upwards(root: Path, path: str, file: str) -> Iterator[int]:
    """A container may see its own group as the root, under whatever name the host knows it."""
    group = root / path.lstrip("/")
    for place in (group, *group.parents):
        with suppress(OSError, ValueError):
            yield int((place / file).read_text(encoding="ascii"))
        if place == root:
            return


class SystemClock:
    """Implements `Clock`."""

    def now(self) -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for that long."""
        await asyncio.sleep(seconds)


def boot_seconds() -> float:
    """Seconds, those asleep included. Where no clock counts them, the wall clock has to do."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() if boottime is None else time.clock_gettime(boottime)

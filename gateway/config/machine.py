"""The machine: its clocks, and the memory of it or of the container around this process."""

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
    """Bytes of memory of the machine, or of the control group with the lowest limit."""
    return min([os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), *_memory_limits(cgroup, mount)])


def _memory_limits(cgroup: Path, mount: Path) -> Iterator[int]:
    """Yield the limits of this control group and all its parents, by cgroup v2 or v1."""
    with suppress(OSError):
        for line in cgroup.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _upwards(mount, path, "memory.max")
            elif "memory" in controllers.split(","):
                yield from _upwards(mount / "memory", path, "memory.limit_in_bytes")


def _upwards(root: Path, path: str, file: str) -> Iterator[int]:
    """Yield the limits up to `root`; a container may see its own group as the root, under its name on the host."""
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
        """Sleep in real time."""
        await asyncio.sleep(seconds)


def boot_seconds() -> float:
    """Seconds including those asleep, by the boot-time clock; by the wall clock on systems without one."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() if boottime is None else time.clock_gettime(boottime)

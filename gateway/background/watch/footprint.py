"""What the process takes of the machine's memory, and what there is to take."""

import ctypes
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

ENOUGH = 384 * 2**20
"""Bytes that the gateway with every SDK loaded may need at once."""

_STATM = Path("/proc/self/statm")
_CGROUP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def resident() -> int:
    """Bytes of this process in memory; where there is no /proc, the most it ever had."""
    with suppress(OSError):
        return int(_STATM.read_text(encoding="ascii").split()[1]) * resource.getpagesize()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def ceiling(memory_mb: int | None) -> int:
    """The configured ceiling in bytes, else half of what the machine or its container has, and enough to work with."""
    return max(available() // 2, ENOUGH) if memory_mb is None else memory_mb * 2**20


def available(cgroup: Path = _CGROUP, mount: Path = _MOUNT) -> int:
    """Bytes of the machine, or of the narrowest control group around us."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(cgroup, mount)])


def trim() -> None:
    """Give freed memory back to the system, where the C library can (glibc); may take a while."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _limits(cgroup: Path, mount: Path) -> Iterator[int]:
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

"""The machine we run on, or the container that limits it."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_CGROUP = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")


def available_memory(cgroup: Path = _CGROUP, mount: Path = _MOUNT) -> int:
    """Bytes of the machine, or of the narrowest control group around us."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_limits(cgroup, mount)])


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

"""Control groups: where this process may make one, the kernel itself counts and bounds what a command takes, whatever
its kind. A group is used again: a deleted one would live on as long as the pages of files that were read in it."""

import fcntl
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.sandbox.command import Limits

_ROOT, _OWN = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_SLOTS = 64
_SWAP = "memory.memsw.limit_in_bytes"
_FILES = {1: ("cgroup.procs", "memory.events"), 2: ("tasks", "memory.oom_control")}
"""The list of processes, and what has happened; by the version, which is also how many hierarchies there are."""


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """The group of one command as long as `lock` is open. All by descriptors, which stay valid in another root."""

    lock: int
    members: tuple[int, ...]
    events: int
    kills: int
    """How many processes the kernel had killed in it before."""

    def join(self) -> None:
        """Put this process into it if the kernel lets it, which `holds_any` tells."""
        for each in self.members:
            with suppress(OSError):
                os.write(each, b"0")

    def holds_any(self) -> bool:
        """Whether a process is in it."""
        return all(os.pread(each, 1, 0) for each in self.members)

    def lacked_memory(self) -> bool:
        """Whether the kernel has killed one of its processes for want of memory."""
        return _kills(self.events) > self.kills


def take_group(limits: Limits, root: Path = _ROOT, own: Path = _OWN) -> ControlGroup | None:
    """Take a group and set its limits; None where this process may not make any."""
    with suppress(OSError, KeyError):
        parents = _parents(root, own)
        for slot in range(_SLOTS):
            folders = [parent / f"supaclaw-{slot}" for parent in parents]
            for each in folders:
                each.mkdir(exist_ok=True)
            lock = os.open(folders[0], os.O_RDONLY)
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return _limited(lock, folders, limits)
            os.close(lock)
    return None


def _parents(root: Path, own: Path) -> list[Path]:
    """Where groups are made: in version 2 beside the own one, since a group with groups below it holds no process."""
    rows = (line.split(":", 2) for line in own.read_text().splitlines())
    paths = {name: path for _, names, path in rows for name in names.split(",")}
    if "memory" in paths:  # version 1
        return [Path(f"{root}/{name}{paths[name]}") for name in ("memory", "pids")]
    parent = Path(f"{root}{paths['']}").parent if paths[""] != "/" else root
    with suppress(OSError):
        (parent / "cgroup.subtree_control").write_text("+memory +pids")
    return [parent]


def _limited(lock: int, folders: list[Path], limits: Limits) -> ControlGroup:
    """Set the limits; raises `OSError`."""
    (folders[-1] / "pids.max").write_text(str(limits.processes))
    for name, value in (
        (_SWAP, -1), ("memory.limit_in_bytes", limits.memory), (_SWAP, limits.memory),  # version 1
        ("memory.max", limits.memory), ("memory.swap.max", 0), ("memory.oom.group", 1),
    ):  # fmt: skip
        if (folders[0] / name).exists():
            (folders[0] / name).write_text(str(value))
    members, happened = _FILES[len(folders)]
    events = os.open(folders[0] / happened, os.O_RDONLY)
    return ControlGroup(lock, tuple(os.open(each / members, os.O_RDWR) for each in folders), events, _kills(events))


def _kills(events: int) -> int:
    found = re.search(rb"^oom_kill (\d+)", os.pread(events, 4096, 0), re.MULTILINE)
    return int(found[1]) if found else 0

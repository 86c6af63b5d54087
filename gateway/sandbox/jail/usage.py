"""The memory, threads, files and disk that a command takes, seen from outside, and whether it is too much.

Where this process may make control groups, the kernel itself counts and bounds it, whatever its kind. A group is used
again: a deleted one would live on as long as the pages of files that were read in it.
"""

import fcntl
import os
import re
import resource
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gateway.sandbox.command import Command, Ending, Limits, Tier
from gateway.sandbox.jail import namespaces
from gateway.sandbox.jail.supervisor import descendants

_GROUPS, _OWN_GROUP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
_SLOTS = 64
_SWAP = "memory.memsw.limit_in_bytes"
_GROUP_FILES = {1: ("cgroup.procs", "memory.events"), 2: ("tasks", "memory.oom_control")}
"""The list of processes, and what has happened; by the version, which is also how many hierarchies there are."""

_OWN = (b"RssAnon:", b"VmPTE:", b"VmSwap:", b"HugetlbPages:")
_SHARED = b"RssShmem:"
OPEN_FILES = 1024
"""Of each process."""
_PIPE_BYTES = 16 * resource.getpagesize()
_SOCKET_BYTES = 2 * 212_992
"""Of the usual buffer; the last message in it may be as long as all before."""
_ZEROS = b" /dev/zero"
"""A shared mapping of this device is memory of no process and no file."""


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


def take_group(limits: Limits, root: Path = _GROUPS, own: Path = _OWN_GROUP) -> ControlGroup | None:
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
    members, happened = _GROUP_FILES[len(folders)]
    events = os.open(folders[0] / happened, os.O_RDONLY)
    return ControlGroup(lock, tuple(os.open(each / members, os.O_RDWR) for each in folders), events, _kills(events))


def _kills(events: int) -> int:
    found = re.search(rb"^oom_kill (\d+)", os.pread(events, 4096, 0), re.MULTILINE)
    return int(found[1]) if found else 0


@dataclass(frozen=True, slots=True)
class Usage:
    """Measures what a command takes; its group, if it has one, counts all of it but the disk."""

    command: Command
    group: ControlGroup | None
    disks: Mapping[str, os.statvfs_result]
    """The file systems that it can fill, by a path, as they were at its start."""
    sockets: int
    """How many its network had at its start."""
    memory_is_low: bool
    """Whether the machine had nothing to spare at its start."""

    def excess(self) -> Ending | None:
        """The limit that it exceeds, if any."""
        limits = self.command.limits
        for path, before in self.disks.items():
            now = os.statvfs(path)
            files = (now.f_files - now.f_ffree) - (before.f_files - before.f_ffree)
            taken = (before.f_bavail - now.f_bavail) * now.f_frsize
            if taken > limits.disk_bytes or files > limits.disk_files or disk_is_low(now, limits):
                return Ending.DISK
        if self.lacked_memory() or (memory_is_low(limits.spare_percent) and not self.memory_is_low):
            return Ending.MEMORY
        return None if self.group else self._counted()

    def lacked_memory(self) -> bool:
        """Whether the kernel has killed one of its processes for want of memory."""
        return self.group is not None and self.group.lacked_memory()

    def _counted(self) -> Ending | None:
        limits, alone = self.command.limits, self.command.tier is Tier.NAMESPACES
        sockets, threads = max(0, socket_count() - self.sockets), 0  # without a network of its own others close theirs
        taken = sockets * _SOCKET_BYTES + alone * _file_bytes()
        for process in processes(self.command.tier):
            folders = _threads(process)
            threads += len(folders)
            if threads > limits.processes:
                return Ending.PROCESSES  # at once: they may grow faster than they are counted
            living = next(filter(_status, folders), "")  # the first thread may have ended before the others
            taken += _memory(living, _OWN if alone else (*_OWN, _SHARED)) + _open_files(living) * _PIPE_BYTES
            if taken > limits.memory or (not alone and _maps_zeros(living)):
                return Ending.MEMORY
        return None


def disks(command: Command) -> Mapping[str, os.statvfs_result]:
    """The file systems that a command can fill. A container bounds its temporary files itself."""
    paths = {namespaces.workspace_of(command), *[command.scratch] * (command.tier is Tier.LANDLOCK)}
    return {path: os.statvfs(path) for path in paths}


def disk_is_low(found: os.statvfs_result, limits: Limits) -> bool:
    """Whether no more is free than belongs to others; of files, there is no number where there may be any."""
    shares = ((found.f_bavail, found.f_blocks), (found.f_favail, found.f_files))
    crowded = any(free * 100 < whole * limits.spare_percent for free, whole in shares)
    return crowded or found.f_bavail * found.f_frsize < limits.spare_disk_bytes


def memory_is_low(percent: int, path: str = "/proc/meminfo") -> bool:
    """Whether less than so much of the machine's memory is available."""
    with open(path, "rb") as file:
        found = {name: int(value) for name, value, *_ in map(bytes.split, file)}
    return found[b"MemAvailable:"] * 100 < found[b"MemTotal:"] * percent


def socket_count() -> int:
    """How many sockets the network of this process has, also those that are being passed on."""
    with open("/proc/net/sockstat") as file:
        return int(file.readline().split()[2])


def thread_count(tier: Tier) -> int:
    """How many threads the command has."""
    return sum(len(_threads(process)) for process in processes(tier))


def processes(tier: Tier) -> Iterator[int]:
    """Yield the processes of the command, for the one that watches over it."""
    if tier is Tier.NAMESPACES:
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit() and name != "1")
        return
    yield from descendants(os.getpid())


def _threads(process: int) -> list[str]:
    """The folders of its threads in /proc."""
    with suppress(OSError):
        return [f"/proc/{process}/task/{name}" for name in os.listdir(f"/proc/{process}/task")]
    return []


def _status(thread: str) -> bytes:
    """The state of a thread as the kernel shows it; empty once it has given up its memory."""
    with suppress(OSError), open(f"{thread}/status", "rb") as file:
        status = file.read()
        return status if b"\nVmRSS:" in status else b""
    return b""


def _memory(thread: str, kinds: tuple[bytes, ...]) -> int:
    """The bytes of memory of its process."""
    return sum(int(line.split()[1]) * 1024 for line in _status(thread).splitlines() if line.startswith(kinds))


def _file_bytes() -> int:
    """The bytes of the files in the memory of a root of its own: all that its processes share."""
    found = os.statvfs("/")
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def _open_files(thread: str) -> int:
    """How many its process has, each of which may be a pipe; if it hides them, as many as it may have."""
    try:
        return len(os.listdir(f"{thread}/fd"))
    except OSError:
        return OPEN_FILES if _status(thread) else 0


def _maps_zeros(thread: str) -> bool:
    """Whether its process maps them, or hides what it maps."""
    try:
        with open(f"{thread}/maps", "rb") as file:
            return _ZEROS in file.read()
    except OSError:
        return _status(thread) != b""

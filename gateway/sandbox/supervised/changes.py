"""Modes and times of files that lie where a command may write; Landlock does not see these changes."""

import errno
import os
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from gateway.sandbox.kernel import checked, libc
from gateway.sandbox.landlock import Access
from gateway.sandbox.supervised.supervisor import Call, Handler

_HERE, _NO_FOLLOW, _EMPTY_PATH = -100, 0x100, 0x1000
_TIMES = struct.Struct("=4q")
_MODE_BITS = 0o1777


def handlers(access: Mapping[str, Access]) -> dict[str, Handler]:
    """For the calls that make them. `access`: what Landlock lets the command do."""
    roots = tuple(os.path.realpath(path) for path, rights in access.items() if Access.WORK in rights)

    def modes(folder: int | None, path: int | None, mode: int, flags: int | None = None) -> Handler:
        def handle(call: Call) -> None:
            with _file(call, roots, folder, path, flags) as file:
                os.chmod(file, call.arguments[mode] & _MODE_BITS)

        return handle

    def times(folder: int | None, path: int, value: int, flags: int | None = None) -> Handler:
        def handle(call: Call) -> None:
            new = _times(call, value)
            with _file(call, roots, folder, path, flags) as file:
                checked(libc().utimensat(_HERE, file.encode(), new, 0), "utimensat")

        return handle

    return {
        "chmod": modes(None, 0, 1),
        "fchmod": modes(0, None, 1),
        "fchmodat": modes(0, 1, 2),
        "fchmodat2": modes(0, 1, 2, 3),
        "utime": times(None, 0, 1),
        "utimes": times(None, 0, 1),
        "futimesat": times(0, 1, 2),
        "utimensat": times(0, 1, 2, 3),
    }


@contextmanager
def _file(call: Call, roots: tuple[str, ...], folder: int | None, path: int | None, flags: int | None) -> Iterator[str]:
    """What the call is about, by a descriptor of ours; the arguments are told by their places. Raises `OSError`."""
    descriptor = _opened(call, folder, path, 0 if flags is None else call.arguments[flags])
    try:
        call.check()
        own = f"/proc/self/fd/{descriptor}"
        # Nothing can bring a file from elsewhere below these, so where it lies now is where it lay.
        place = os.readlink(own)
        if not any(place == root or place.startswith(f"{root}/") for root in roots):
            raise PermissionError(errno.EPERM, "not where it may write")
        yield own
    finally:
        os.close(descriptor)


def _opened(call: Call, folder: int | None, path: int | None, flags: int) -> int:
    number = _HERE if folder is None else call.number(folder)
    base = f"/proc/{call.thread}/cwd" if number == _HERE else f"/proc/{call.thread}/fd/{number}"
    if path is None or call.arguments[path] == 0:  # of an open file
        return os.open(base, os.O_PATH | os.O_CLOEXEC)
    name = call.path(path)
    if not name:
        if not flags & _EMPTY_PATH:
            raise FileNotFoundError(errno.ENOENT, "no path")
        return os.open(base, os.O_PATH | os.O_CLOEXEC)
    how = os.O_PATH | os.O_CLOEXEC | (os.O_NOFOLLOW if flags & _NO_FOLLOW else 0)
    if name.startswith("/"):
        return os.open(name, how)
    start = os.open(base, os.O_PATH | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        return os.open(name, how, dir_fd=start)
    finally:
        os.close(start)


def _times(call: Call, place: int) -> bytes | None:
    """As `utimensat` takes them; None for now."""
    if call.arguments[place] == 0:
        return None
    if call.name == "utime":
        accessed, modified = struct.unpack("=2q", _whole(call, place, 16))
        return _TIMES.pack(accessed, 0, modified, 0)
    found = _whole(call, place, _TIMES.size)
    if call.name == "utimensat":
        return found
    accessed, fraction, modified, other = _TIMES.unpack(found)
    if not (0 <= fraction < 1_000_000 and 0 <= other < 1_000_000):
        raise OSError(errno.EINVAL, "no time")
    return _TIMES.pack(accessed, fraction * 1000, modified, other * 1000)


def _whole(call: Call, place: int, size: int) -> bytes:
    found = call.memory(place, size)
    if len(found) < size:
        raise OSError(errno.EFAULT, "no memory there")
    return found

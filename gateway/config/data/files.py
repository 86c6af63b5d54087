"""Files that anybody on this machine can replace at any time: opening never waits, reading is bounded."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import structlog

MOST = 1024 * 1024
"""Bytes of a file that a person writes by hand."""

log = structlog.get_logger(__name__)


def read_regular(path: Path, most: int = MOST) -> bytes:
    """The whole file; raises `OSError` for one that is no regular file or has more than `most` bytes."""
    with open_regular(path, os.O_RDONLY) as file:
        data = b""
        while chunk := os.read(file, most + 1 - len(data)):
            data += chunk
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
    return data


def write_regular(path: Path, data: bytes) -> None:
    """Write a few bytes in place; what lies there and is no regular file is moved aside."""
    clear_way(path)
    with open_regular(path, os.O_WRONLY | os.O_CREAT) as file:
        overwrite(file, data)


def overwrite(file: int, data: bytes) -> None:
    """Replace what a file holds, first in the room that it has: what is small fits even on a full disk."""
    written = 0
    while written < len(data):
        written += os.pwrite(file, data[written:], written)
    os.ftruncate(file, written)


def replace_regular(path: Path, data: bytes) -> None:
    """The same, so that a crash leaves either the old file or the new one; without fsync."""
    beside = path.with_name(f"{path.name}.new")
    write_regular(beside, data)
    clear_way(path)
    beside.replace(path)


@contextmanager
def open_regular(path: Path, flags: int) -> Iterator[int]:
    """A descriptor, which never blocks; a new file is private."""
    file = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    try:
        if stat.S_ISDIR(mode := os.fstat(file).st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        yield file
    finally:
        os.close(file)


def clear_way(path: Path) -> None:
    """Make the folder, and rename what is no regular file to `<name>.aside`, or the next free name."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.path.lexists(path) and not os.path.isfile(path):
        names = (path.with_name(f"{path.name}.aside{number or ''}") for number in count())
        path.replace(aside := next(name for name in names if not os.path.lexists(name)))
        log.warning("file.moved_aside", path=str(path), to=str(aside))

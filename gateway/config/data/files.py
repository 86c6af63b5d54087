"""Files that survive: opening never waits and reading is bounded, though anybody on this machine can replace them at
any time; small ones outlive a power cut, and disks may have no room for them."""

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from secrets import token_hex

import structlog

from gateway.domain.errors import DiskFull, OwnerMustAct, SupaclawError

MAX_BYTES = 1024 * 1024
"""Bytes of a file that a person writes by hand."""

log = structlog.get_logger(__name__)


def read_regular(path: Path, most: int = MAX_BYTES) -> bytes:
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
    """Replace a private file, or make it; a crash of this process leaves the old one or the new one.

    An error leaves the old one and nothing else, and names `path`.
    """
    _replace(path, data, draft_of(path), durable=False)


def replace_private(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """The same, on disk with its name when it returns, so that a power cut leaves one of them, too."""
    _replace(path, data, draft_of(path), durable=True, mode=mode)


def replace_edited(path: Path, data: bytes) -> None:
    """The same for a file that several processes edit, in a folder that there must be; it keeps its mode."""
    path.parent.stat()
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
    _replace(path, data, path.with_name(f".{path.name}.{token_hex(8)}"), durable=True, mode=mode)


def draft_of(path: Path) -> Path:
    """The path that `replace_private` writes to first; only a kill leaves a file there."""
    return path.with_name(f"{path.name}.new")


def _replace(path: Path, data: bytes, draft: Path, *, durable: bool, mode: int = 0o600) -> None:
    clear_way(draft)
    draft.unlink(missing_ok=True)
    try:
        write_regular(draft, data)
        draft.chmod(mode)
        if durable:
            sync_to_disk(draft)
        clear_way(path)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        error.filename = str(path)
        raise
    if durable:
        sync_to_disk(path.parent)


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


_DISK_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})
_PROBE = 2**20


def create_private(path: Path, data: bytes, *, anew: bool = False) -> None:
    """Make a private file, on disk with its name, unless there is one; a crash or a second process leaves no half.

    With `anew`, what there is makes way.
    """
    clear_way(path)
    if anew:
        path.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile(prefix=f".{path.name}-", dir=path.parent) as draft:
        overwrite(draft.fileno(), data)
        os.fsync(draft.fileno())
        with suppress(FileExistsError):
            os.link(draft.name, path)
    sync_to_disk(path.parent)
    with suppress(PermissionError):
        sync_to_disk(path.parent.parent)


def sync_to_disk(path: Path) -> None:
    """Bring a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_full(error: BaseException) -> bool:
    """Whether it consists of, or comes from, an error of a disk without room."""
    if isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in _DISK_FULL_ERRNOS):
        return True
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return any(disk_full(each) for each in (*parts, error.__cause__) if each is not None)


def has_room(folder: Path) -> bool:
    """Whether a file of a megabyte fits on the disk of `folder`."""
    try:
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE))
            probe.flush()
    except OSError as error:
        return not disk_full(error)
    return True


def error_type(error: OSError) -> type[SupaclawError]:
    """As what to raise it: a full disk can be waited for."""
    return DiskFull if disk_full(error) else OwnerMustAct

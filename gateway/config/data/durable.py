"""Small files that outlive a power cut, and disks that have no room for them."""

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from gateway.config.data.files import clear_way, overwrite, write_regular
from gateway.domain.errors import DiskFull, OwnerMustAct, SupaclawError

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_PROBE = 2**20


def make_once(path: Path, data: bytes, *, anew: bool = False) -> None:
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
    sync(path.parent)
    with suppress(PermissionError):
        sync(path.parent.parent)


def replace_private(path: Path, data: bytes) -> None:
    """Replace a private file, or make it; a crash leaves the old one or the new one, on disk with its name.

    An error leaves the old one and nothing else, and names `path`.
    """
    beside = draft(path)
    clear_way(beside)
    beside.unlink(missing_ok=True)
    try:
        write_regular(beside, data)
        os.chmod(beside, 0o600)
        sync(beside)
    except OSError as error:
        beside.unlink(missing_ok=True)
        error.filename = str(path)
        raise
    clear_way(path)
    beside.replace(path)
    sync(path.parent)


def draft(path: Path) -> Path:
    """Where `replace_private` writes first; only a kill leaves it there."""
    return path.with_name(f"{path.name}.new")


def sync(path: Path) -> None:
    """Bring a file, or the names in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def disk_full(error: BaseException) -> bool:
    """Whether it consists of, or comes from, an error of a disk without room."""
    if isinstance(error, DiskFull) or (isinstance(error, OSError) and error.errno in _FULL):
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

"""Opens files below a root, replaces them atomically, and bounds what a folder may hold.

Paths are opened one component at a time, following no links; a crash leaves either the old file or the new one.
"""

import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from time import monotonic
from typing import BinaryIO, TypeAlias

from gateway.workspace.files.paths import MAX_LEVELS, WorkspaceError, WorkspacePath

Parts: TypeAlias = tuple[str, ...]
"""A folder, by the parts of its path."""
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Opening a pipe must not wait for its writer."""

_FULL = "The disk is full; nothing was changed. Ask the owner to free space."
_DENIED = "The gateway has no permission for {path}; nothing was changed. Ask the owner to correct its mode or owner."
_TELL: dict[int, tuple[str, str]] = {
    errno.ENOENT: ("not_found", "{path} does not exist; list its folder to see what does."),
    errno.ENOTDIR: (
        "not_a_folder",
        "A part of {path} is a file or a link, not a folder; list the folder above it to see what is there.",
    ),
    errno.ELOOP: ("not_a_file", "{path} is a link, and links are not followed; use the file's own path."),
    errno.EISDIR: ("not_a_file", "{path} is a folder; name a file, or list it with list_files."),
    errno.ENOSPC: ("disk_full", _FULL),
    errno.EDQUOT: ("disk_full", _FULL),
    errno.EACCES: ("denied", _DENIED),
    errno.EPERM: ("denied", _DENIED),
    errno.EROFS: ("denied", _DENIED),
}


@contextmanager
def explained_errors(path: WorkspacePath) -> Iterator[None]:
    """Convert the system's errors to `WorkspaceError`."""
    try:
        yield
    except OSError as error:
        code, text = _TELL.get(error.errno or 0, ("io_error", f"{{path}} cannot be used: {error.strerror}."))
        raise WorkspaceError(code, text.format(path=path)) from error


@contextmanager
def open_folder(root: Path, parts: Parts, *, create: int | None = None) -> Iterator[int]:
    """Open the folder; creates missing folders if `create`, their mode, is given."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if create is not None:
                with suppress(FileExistsError):
                    os.mkdir(part, create, dir_fd=folder)
            below = os.open(part, FOLDER_FLAGS, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


@contextmanager
def moving(root: Path, path: WorkspacePath, source: Parts, target: Parts) -> Iterator[tuple[int, int]]:
    """Open the folders between which a file moves, the second made if missing; errors are explained as of `path`."""
    with explained_errors(path), open_folder(root, source) as above, open_folder(root, target, create=0o777) as below:
        yield above, below


@contextmanager
def open_file(root: Path, path: WorkspacePath, flags: int = READ_FLAGS) -> Iterator[int]:
    """Open a regular file."""
    if not path.parts:
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    with open_folder(root, path.parents) as folder:
        file = os.open(path.name, flags, dir_fd=folder)
    try:
        require_regular(os.fstat(file), path)
        yield file
    finally:
        os.close(file)


def require_regular(status: os.stat_result, path: WorkspacePath) -> None:
    """Raise for folders, links, devices, pipes and sockets."""
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, "is a folder")
    if not stat.S_ISREG(status.st_mode):
        raise WorkspaceError("not_a_file", f"{path} is a link or a device, not a plain file; use another name.")


TEMPORARY_PREFIX = ".writing-"
"""Prefix of a file being written; one that remains was left by a crash."""
NEW_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def temporary_name() -> str:
    """A name for a file being written."""
    return f"{TEMPORARY_PREFIX}{secrets.token_hex(8)}"


def replace_file(folder: int, path: WorkspacePath, data: bytes) -> None:
    """Write `data` to `path.name` in the open `folder`, with fsync; keeps the old file's mode."""
    mode = None
    with suppress(FileNotFoundError):
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
        require_regular(status, path)
        mode = stat.S_IMODE(status.st_mode)
    with replacing(folder, path.name) as temporary, new_file(folder, temporary) as file:
        if mode is not None:
            os.fchmod(file.fileno(), mode)
        file.write(data)


@contextmanager
def replacing(folder: int, name: str) -> Iterator[str]:
    """Let what is made under the name that this yields replace `name`; if the block raises, nothing is left of it."""
    temporary = temporary_name()
    try:
        yield temporary
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


@contextmanager
def new_file(folder: int, name: str, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Create a file for writing; it is on disk after the block."""
    with open(os.open(name, NEW_FLAGS, mode, dir_fd=folder), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


ENTRY_BYTES = 4096
"""Counted for each file and folder besides its content."""
MEASURE_SECONDS = 5.0


class Quota:
    """Counts what is written; walks the folder only before it refuses, at most every `MEASURE_SECONDS`."""

    def __init__(self, root: Path, most_mb: Callable[[], int | None], clock: Callable[[], float] = monotonic) -> None:
        self._root, self._most_mb, self._clock = root, most_mb, clock
        self._used, self._measured_at = inf, -inf
        self._counting = threading.Lock()

    def reserve(self, size: int) -> None:
        """Count `size` bytes as used, before they are written; raises `WorkspaceError` if there is no room. Blocks."""
        most, size = self._most_mb(), size + ENTRY_BYTES
        if most is None:
            return
        with self._counting:
            if self._used + size > most << 20 and self._clock() - self._measured_at >= MEASURE_SECONDS:
                self._used, self._measured_at = size_of(self._root), self._clock()
            if self._used + size > most << 20:
                cure = "make large ones smaller, or ask the owner to delete some or to raise the limit"
                raise WorkspaceError("quota", f"The files here may take {most} MB (limits.member_mb); {cure}.")
            self._used += size


def size_of(root: Path) -> int:
    """Bytes below, but for holes; a file being written, and what is gone meanwhile, do not count."""
    size = 0
    for folder, folders, names in os.walk(root):
        size += ENTRY_BYTES * len(folders)
        if folder.count(os.sep) > MAX_LEVELS:
            folders.clear()
        for name in (name for name in names if not name.startswith(TEMPORARY_PREFIX)):
            with suppress(OSError):
                status = os.lstat(os.path.join(folder, name))
                size += ENTRY_BYTES + min(status.st_size, status.st_blocks * 512)
    return size

"""Opens files below a root without escaping it: one path component at a time, following no links."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from gateway.workspace.paths import WorkspaceError, WorkspacePath

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""Opening a pipe must not wait for its writer."""

_FULL = "The disk is full; nothing was changed. Ask the owner to free space."
_DENIED = "The gateway has no permission for {path}; nothing was changed. Ask the owner to correct its mode or owner."
_TELL: dict[int, tuple[str, str]] = {
    errno.ENOENT: ("not_found", "{path} does not exist; list_files shows what does."),
    errno.ENOTDIR: (
        "not_a_folder",
        "A part of {path} is a file or a link, not a folder; list_files shows what is there.",
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
def explained(path: WorkspacePath) -> Iterator[None]:
    """Convert the system's errors to `WorkspaceError`."""
    try:
        yield
    except OSError as error:
        code, text = _TELL.get(error.errno or 0, ("io_error", f"{{path}} cannot be used: {error.strerror}."))
        raise WorkspaceError(code, text.format(path=path)) from error


@contextmanager
def open_folder(root: Path, parts: tuple[str, ...], *, create: int | None = None) -> Iterator[int]:
    """Open the folder; creates missing folders if `create`, their mode, is given."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts:
            if create is not None:
                with suppress(FileExistsError):
                    os.mkdir(part, create, dir_fd=folder)
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


@contextmanager
def open_file(root: Path, path: WorkspacePath, flags: int = READ) -> Iterator[int]:
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

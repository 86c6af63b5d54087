"""Atomic file replacement: a crash leaves either the old file or the new one."""

import os
import secrets
import stat
from contextlib import suppress

from gateway.workspace.descent import require_regular
from gateway.workspace.paths import WorkspacePath

TEMPORARY = ".writing-"
"""Prefix of a file being written; one that remains was left by a crash."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def replace_file(folder: int, path: WorkspacePath, data: bytes) -> None:
    """Write `data` to `path.name` in the open `folder`, with fsync; keeps the old file's mode."""
    mode = _mode_of(folder, path)
    temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
    file = os.open(temporary, _NEW, 0o666, dir_fd=folder)
    try:
        _fill(file, data, mode)
        os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def _mode_of(folder: int, path: WorkspacePath) -> int | None:
    try:
        status = os.stat(path.name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    require_regular(status, path)
    return stat.S_IMODE(status.st_mode)


def _fill(file: int, data: bytes, mode: int | None) -> None:
    with open(file, "wb") as stream:
        if mode is not None:
            os.fchmod(file, mode)
        stream.write(data)
        stream.flush()
        os.fsync(file)

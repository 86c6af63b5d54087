"""Atomic file replacement: a crash leaves either the old file or the new one."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

from gateway.workspace.descent import require_regular
from gateway.workspace.paths import WorkspacePath

TEMPORARY = ".writing-"
"""Prefix of a file being written; one that remains was left by a crash."""
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def temporary_name() -> str:
    """A name for a file being written."""
    return f"{TEMPORARY}{secrets.token_hex(8)}"


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
    with open(os.open(name, NEW, mode, dir_fd=folder), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())

"""Measures a file of any size without loading it into memory."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from gateway.workspace.descent import explained, open_file
from gateway.workspace.paths import WorkspaceError, WorkspacePath
from gateway.workspace.tree import Written

SPARSE_BYTES = 1024 * 1024

_CHUNK = 1024 * 1024


def measure(root: Path, path: str, most: int) -> Written:
    """Size and hash of a file. Raises `WorkspaceError`, with code `too_large` for more than `most` bytes."""
    where = WorkspacePath.parse(path)
    digest, size = hashlib.sha256(), 0
    with explained(where), open_file(root, where) as file:
        _check(os.fstat(file).st_size, most, where)
        while chunk := os.pread(file, _CHUNK, size):
            digest.update(chunk)
            size += len(chunk)
            _check(size, most, where)
    return Written(str(where), size, digest.hexdigest())


def mostly_holes(file: int, status: os.stat_result) -> bool:
    """Whether most of a large file is nowhere on disk: it takes no room, and reading it gives zeros for hours."""
    if status.st_size < SPARSE_BYTES or status.st_blocks * 1024 > status.st_size:
        return False
    data = end = 0
    with suppress(OSError):  # there is no data beyond
        while True:
            start = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, start, os.SEEK_HOLE)
            data += end - start
    os.lseek(file, 0, os.SEEK_SET)
    return data * 2 < status.st_size


def _check(size: int, most: int, path: WorkspacePath) -> None:
    if size > most:
        message = f"{path} has {size / 1e6:.1f} MB; the limit for sending there is {most / 1e6:g} MB."
        raise WorkspaceError("too_large", message)

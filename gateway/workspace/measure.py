"""Measures a file of any size without loading it into memory."""

import hashlib
import os
from pathlib import Path

from gateway.workspace.descent import explained, open_file
from gateway.workspace.paths import WorkspaceError, WorkspacePath
from gateway.workspace.tree import Written

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


def _check(size: int, most: int, path: WorkspacePath) -> None:
    if size > most:
        message = f"{path} has {size / 1e6:.1f} MB; the limit for sending there is {most / 1e6:g} MB."
        raise WorkspaceError("too_large", message)

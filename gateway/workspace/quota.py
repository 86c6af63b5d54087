"""How much a folder may hold."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from time import monotonic

from gateway.workspace.atomic import TEMPORARY
from gateway.workspace.paths import MAX_LEVELS, WorkspaceError

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
        for name in (name for name in names if not name.startswith(TEMPORARY)):
            with suppress(OSError):
                status = os.lstat(os.path.join(folder, name))
                size += ENTRY_BYTES + min(status.st_size, status.st_blocks * 512)
    return size

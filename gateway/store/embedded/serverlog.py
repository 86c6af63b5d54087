"""The log file of the embedded server: kept small, and read for the reason when the server does not start."""

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import IO

from gateway.config.data.files import clear_way, has_room, open_regular, write_regular
from gateway.domain.errors import DiskFull, OwnerMustAct, SupaclawError

_LARGEST = 8_000_000
_MOST = 4 * _LARGEST
_TAIL = 4_000
_COMPLAINT = re.compile(r"(?:FATAL(?!:  the database system is )|PANIC|ERROR|error|could not|No space).*")
"""Not the answers to clients that came while it was starting or stopping."""
_FOLDER = re.compile(r"/proc/self/fd/\d+")
_FULL = re.compile(r"No space left on device|Disk quota exceeded|wrote only \d+ of \d+")


class ServerLog:
    """`postgres.log` and, once that grew too large, its predecessor `postgres.log.1`."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> IO[bytes]:
        """For the server to append to."""
        clear_way(self.path)
        return os.fdopen(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab")

    def size(self) -> int:
        """Where the next line will begin."""
        return self.path.stat().st_size if self.path.exists() else 0

    def said(self, since: int) -> str:
        """What was written after position `since`."""
        try:
            with open_regular(self.path, os.O_RDONLY) as file:
                return os.pread(file, _MOST, since).decode(errors="replace")
        except OSError:
            return ""

    def last_line(self) -> str:
        """What the server said last."""
        return next(reversed(self.said(max(0, self.size() - _TAIL)).splitlines()), "")

    def trim(self) -> None:
        """Start over when too large; the server appends, so emptying the file under it is safe."""
        if self.size() > _LARGEST:
            with suppress(OSError):  # a full disk
                old = self.said(max(0, self.size() - _MOST))
                write_regular(self.path.with_name(f"{self.path.name}.1"), old.encode())
            os.truncate(self.path, 0)


def reason(output: str) -> str:
    """What a program complained about last, as one line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    complaints = [found.group() for line in lines if (found := _COMPLAINT.search(line))]
    return next(reversed(complaints or lines), "it gave no reason")


def failure(what: str, output: str, folder: Path, see: str = "") -> SupaclawError:
    """What to raise for a program that failed; its output may lack the reason if it lies on the disk that is full."""
    kind = OwnerMustAct if has_room(folder) and not _FULL.search(output) else DiskFull
    return kind(f"{what}: {_FOLDER.sub(str(folder), reason(output))}{see}")

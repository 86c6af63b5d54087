"""Log files being written: appended to line by line, an open handle for few."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from threading import Lock
from uuid import UUID

from gateway.logs.trails import Trail, gateway_trail, session_trail

Today = Callable[[], date]

OPEN_SESSIONS = 32
"""Sessions whose file stays open; more would only cost descriptors."""


class DailyFile:
    """`gateway-YYYY-MM-DD.log` by UTC day; `gateway.log` leads to the newest."""

    def __init__(self, folder: Path, today: Today) -> None:
        self._folder = folder
        self._trail = gateway_trail(folder)
        self._today = today
        self._day: date | None = None
        self._file: Appended | None = None
        self._lock = Lock()

    def write(self, line: str) -> None:
        """Append one line and hand it to the system; raises `OSError` when the disk does not take it."""
        with self._lock:
            day = self._today()
            if self._file is None or day != self._day:
                self._let_go()
                self._file = self._open(day)
                self._day = day
            self._file.write(line)

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _open(self, day: date) -> "Appended":
        path = self._trail.path(day)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = Appended(path)
        _lead(self._folder / "gateway.log", path.name)
        return file


class SessionFiles:
    """`sessions/<id>/YYYY-MM-DD.log` by UTC day, for the lines that belong to a session."""

    def __init__(self, folder: Path, today: Today, most: int = OPEN_SESSIONS) -> None:
        self._folder = folder
        self._today = today
        self._most = most
        self._day: date | None = None
        self._files: dict[UUID, Appended] = {}
        self._lock = Lock()

    def write(self, session: UUID, line: str) -> None:
        """Append one line to the session's file; raises `OSError` when the disk does not take it."""
        with self._lock:
            day = self._today()
            if day != self._day:
                self._let_go(0)
                self._day = day
            file = self._files.pop(session, None) or self._open(session_trail(self._folder, session), day)
            self._files[session] = file
            self._let_go(self._most)
            file.write(line)

    def close(self) -> None:
        """Let go of every file."""
        with self._lock:
            self._let_go(0)

    def _let_go(self, keep: int) -> None:
        """Close what was written to longest ago, until only so many are open."""
        while len(self._files) > keep:
            self._files.pop(next(iter(self._files))).close()

    def _open(self, trail: Trail, day: date) -> "Appended":
        for folder in (self._folder, trail.folder.parent, trail.folder):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Appended(trail.path(day))


class Appended:
    """One open log file. A line that a full disk tore is ended before the next one begins."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        self._torn = not _ends_a_line(self._handle)

    def write(self, line: str) -> None:
        """Raises `OSError` when not all of it was taken."""
        start = "\n" if self._torn else ""
        content = f"{start}{line}\n".encode(errors="backslashreplace")
        written = os.write(self._handle, content)
        self._torn = written < len(content)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """What the disk did not take is lost."""
        with suppress(OSError):
            os.close(self._handle)


def _ends_a_line(handle: int) -> bool:
    size = os.fstat(handle).st_size
    return size == 0 or os.pread(handle, 1, size - 1) == b"\n"


def _lead(link: Path, target: str) -> None:
    """Point `link` at `target` in one step; a file system without links goes without."""
    beside = link.with_suffix(".new")
    with suppress(OSError):
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        beside.replace(link)

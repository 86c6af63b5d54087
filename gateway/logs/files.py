"""Log files: their paths, writing, pruning, and their lines, rendered for people and read back.

A trail is the log files of the gateway, or of one session."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from threading import RLock
from typing import Literal, TextIO, TypeAlias
from uuid import UUID

from pydantic import JsonValue
from structlog.dev import ConsoleRenderer, plain_traceback

from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import json_or_text
from gateway.domain.text.texts import printable


@dataclass(frozen=True, slots=True)
class Trail:
    """The files `<prefix>YYYY-MM-DD.log` of one folder, by UTC day."""

    folder: Path
    prefix: str = ""

    def path(self, day: date) -> Path:
        """The file of that day, which may not exist."""
        return self.folder / f"{self.prefix}{day:%Y-%m-%d}.log"

    def days(self) -> list[date]:
        """The days that have a file, oldest first."""
        found = []
        for path in self.folder.glob(f"{self.prefix}????-??-??.log"):
            with suppress(ValueError):
                found.append(date.fromisoformat(path.stem.removeprefix(self.prefix)))
        return sorted(found)


def gateway_trail(logs: Path) -> Trail:
    """The trail of the gateway."""
    return Trail(logs, "gateway-")


def session_trail(logs: Path, session: object) -> Trail | None:
    """The trail of one session; None unless `session` is a canonical id, since nothing else may become a path."""
    with suppress(ValueError):
        if str(UUID(str(session))) == session:
            return Trail(logs / "sessions" / session)
    return None


def session_trails(logs: Path) -> list[Trail]:
    """The trails of all sessions with a log, sorted by id."""
    folders = [path for path in sorted(logs.glob("sessions/*")) if path.is_dir() and not path.is_symlink()]
    return [trail for folder in folders if (trail := session_trail(logs, folder.name))]


def find_session_trail(logs: Path, beginning: str) -> Trail:
    """The only session with a log whose id begins like this; raises `OwnerMustAct`."""
    found = [trail for trail in session_trails(logs) if trail.folder.name.startswith(beginning.lower())]
    if len(found) == 1:
        return found[0]
    many = f"{len(found)} sessions with a log" if found else "no session with a log"
    raise OwnerMustAct(f"{beginning} matches {many}; `supaclaw sessions` lists them")


def prune(logs: Path, keep: timedelta | None, today: date) -> int:
    """Delete log files that only hold lines older than `keep`, and empty folders; returns how many files. Blocks.

    `keep` None deletes nothing. Other files stay; a file that can't be deleted is tried again the next time.
    """
    if keep is None:
        return 0
    deleted = 0
    for trail in (gateway_trail(logs), *session_trails(logs)):
        for day in trail.days():
            if today - day - timedelta(days=1) >= keep:
                with suppress(OSError):
                    trail.path(day).unlink()
                    deleted += 1
        with suppress(OSError):
            trail.folder.rmdir()
    return deleted


class LogFiles:
    """Appends lines to the files of today. Only the last files written to stay open."""

    def __init__(self, today: Callable[[], date], most_open: int = 32) -> None:
        self._today = today
        self._most_open = most_open
        self._day: date | None = None
        self._handles: dict[Path, int] = {}
        self._lock = RLock()

    def write(self, trail: Trail, line: str) -> None:
        """Append a line; raises `OSError`."""
        with self._lock:
            if self._day != (day := self._today()):
                self.close()
                self._day = day
            path = trail.path(day)
            handle = self._handles.pop(path) if path in self._handles else _open_log(path)
            if not _leads_to(path, handle):
                os.close(handle)
                handle = _open_log(path)
            self._handles[path] = handle
            self.close(self._most_open)
            _append(handle, line)

    def close(self, keep: int = 0) -> None:
        """Close all files except the last `keep` written to."""
        with self._lock, suppress(OSError):
            while len(self._handles) > keep:
                os.close(self._handles.pop(next(iter(self._handles))))


def _open_log(path: Path) -> int:
    if not path.parent.is_dir():
        for folder in reversed(path.parents):
            folder.mkdir(mode=0o700, exist_ok=True)
    if os.path.lexists(path) and not os.path.isfile(path):
        path.replace(path.with_name(f"{path.name}.aside"))
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o600)
    if path.name.startswith("gateway-"):
        _link_to(path.with_name("gateway.log"), path.name)
    return handle


def _leads_to(path: Path, handle: int) -> bool:
    """Whether the path still names this file, which somebody may delete or replace."""
    with suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(handle))
    return False


def _link_to(link: Path, target: str) -> None:
    """Point `link` at `target` atomically, if the file system has links."""
    beside = link.with_suffix(".new")
    with suppress(OSError):
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        beside.replace(link)


def _append(handle: int, line: str) -> None:
    """Append a line; ends an incomplete line, left by a crash or a full disk, first."""
    size = os.fstat(handle).st_size
    start = "\n" if size and os.pread(handle, 1, size - 1) != b"\n" else ""
    os.write(handle, f"{start}{line}\n".encode(errors="backslashreplace"))


Event: TypeAlias = Mapping[str, JsonValue]
Level: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS = logging.getLevelNamesMapping()


def line_renderer(target: TextIO) -> Callable[[Mapping[str, object]], str]:
    """A function that renders an event as a line, with colours if `target` is a terminal that wants them.

    No content of an event can move the cursor, and only a traceback has several lines.
    """
    colours = target.isatty() and not os.environ.get("NO_COLOR")
    render = ConsoleRenderer(colors=colours, exception_formatter=plain_traceback, sort_keys=False)
    return lambda event: str(
        render(None, "", {printable(key, keep=""): _printable_value(key, value) for key, value in event.items()})
    )


def _printable_value(key: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    return printable(value, keep="\n\t" if key in {"exception", "stack"} else "")


def follow_lines(trail: Trail, day: date, today: Callable[[], date], most: int | None = None) -> Iterator[list[str]]:
    """Yield the new lines at each step, without end: first all of `day`, later also those of the following days.

    An incomplete line waits for the next step. With `most`, the first step yields only the lines in the last so many
    bytes.
    """
    position = 0
    if most is not None:
        with suppress(FileNotFoundError):
            position = _line_after(trail.path(day), most)
    while True:
        newest, added = today(), b""
        with suppress(FileNotFoundError), trail.path(day).open("rb") as file:
            file.seek(position)
            added = file.read()
        whole = added[: added.rfind(b"\n") + 1]
        yield whole.decode(errors="replace").split("\n")[:-1]
        day, position = (newest, 0) if newest > day else (day, position + len(whole))


def _line_after(path: Path, most: int) -> int:
    """Where the first whole line of the last `most` bytes begins."""
    with path.open("rb") as file:
        start = max(0, path.stat().st_size - most)
        file.seek(start)
        return start + len(file.readline()) if start else 0


def event_of(line: str) -> Event:
    """The event in a line; of a damaged line, its text."""
    event = json_or_text(line)
    return event if isinstance(event, dict) else {"event": line}


def at_least(event: Event, level: str) -> bool:
    """Whether the event has at least this level; without one it counts as critical."""
    return _LEVELS.get(str(event.get("level")).upper(), logging.CRITICAL) >= _LEVELS[level.upper()]

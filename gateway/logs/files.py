"""Log files: where they lie, how they grow, when they go, and their lines, for people and read back as they come.

A trail is the files of the gateway, or of one session."""

import json
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
from gateway.domain.text.texts import printable


@dataclass(frozen=True, slots=True)
class Trail:
    """The files `<prefix>YYYY-MM-DD.log` of one folder, by UTC day."""

    folder: Path
    prefix: str = ""

    def path(self, day: date) -> Path:
        """The file of that day, be it there or not."""
        return self.folder / f"{self.prefix}{day:%Y-%m-%d}.log"

    def days(self) -> list[date]:
        """The days that have a file, oldest first."""
        found = []
        for path in self.folder.glob(f"{self.prefix}????-??-??.log"):
            with suppress(ValueError):
                found.append(date.fromisoformat(path.stem.removeprefix(self.prefix)))
        return sorted(found)


def gateway_trail(logs: Path) -> Trail:
    """Everything the gateway logs."""
    return Trail(logs, "gateway-")


def session_trail(logs: Path, session: object) -> Trail | None:
    """What belongs to one session; None unless `session` is an id as we write it, as nothing else may become a path."""
    with suppress(ValueError):
        if str(UUID(str(session))) == session:
            return Trail(logs / "sessions" / session)
    return None


def session_trails(logs: Path) -> list[Trail]:
    """Of every session that has a log, by id."""
    folders = [path for path in sorted(logs.glob("sessions/*")) if path.is_dir() and not path.is_symlink()]
    return [trail for folder in folders if (trail := session_trail(logs, folder.name))]


def find_session_trail(logs: Path, beginning: str) -> Trail:
    """The one session with a log whose id begins so; raises `OwnerMustAct`."""
    found = [trail for trail in session_trails(logs) if trail.folder.name.startswith(beginning.lower())]
    if len(found) == 1:
        return found[0]
    many = f"{len(found)} sessions with a log" if found else "no session with a log"
    raise OwnerMustAct(f"{beginning} matches {many}; `supaclaw sessions` lists them")


def prune(logs: Path, keep: timedelta | None, today: date) -> int:
    """Delete files every line of which is older than `keep`, and folders left empty; how many files. Blocks.

    `keep` None deletes nothing. Files whose names are not ours stay; what cannot be deleted waits for the next time.
    """
    if keep is None:
        return 0
    gone = 0
    for trail in (gateway_trail(logs), *session_trails(logs)):
        for day in trail.days():
            if today - day - timedelta(days=1) >= keep:
                with suppress(OSError):
                    trail.path(day).unlink()
                    gone += 1
        with suppress(OSError):
            trail.folder.rmdir()
    return gone


class LogFiles:
    """Files being written: each line is appended to today's. Only those written to last stay open."""

    def __init__(self, today: Callable[[], date], most_open: int = 32) -> None:
        self._today = today
        self._most_open = most_open
        self._day: date | None = None
        self._handles: dict[Path, int] = {}
        self._lock = RLock()

    def write(self, trail: Trail, line: str) -> None:
        """Raises `OSError` when the disk does not take it."""
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

    def close(self, but: int = 0) -> None:
        """Let go of every file but so many, which were written to last."""
        with self._lock, suppress(OSError):
            while len(self._handles) > but:
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
    """Whether this is still the file of that name: somebody may delete or replace it."""
    with suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(handle))
    return False


def _link_to(link: Path, target: str) -> None:
    """Point `link` at `target` in one step; a file system without links goes without."""
    beside = link.with_suffix(".new")
    with suppress(OSError):
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        beside.replace(link)


def _append(handle: int, line: str) -> None:
    """A line that a crash or a full disk tore is ended before this one."""
    size = os.fstat(handle).st_size
    start = "\n" if size and os.pread(handle, 1, size - 1) != b"\n" else ""
    os.write(handle, f"{start}{line}\n".encode(errors="backslashreplace"))


Event: TypeAlias = Mapping[str, JsonValue]
Level: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS = logging.getLevelNamesMapping()


def line_renderer(target: TextIO) -> Callable[[Mapping[str, object]], str]:
    """Makes a line of an event, with colours where `target` is a terminal that wants them.

    Nothing in an event can move the cursor, and only a traceback has lines of its own.
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
    """Without end, what was added since the look before; the first gives all of `day`, later ones go over midnights.

    A line still being written is left for the next look. With `most`, the first gives only the lines of the last so
    many bytes.
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
    """What the line says; of one that a crash or a full disk tore, just its text."""
    with suppress(ValueError):
        event: JsonValue = json.loads(line)
        if isinstance(event, dict):
            return event
    return {"event": line}


def at_least(event: Event, level: str) -> bool:
    """Whether the event is as bad as `level`, or worse; one without a level counts as the worst."""
    return _LEVELS.get(str(event.get("level")).upper(), logging.CRITICAL) >= _LEVELS[level.upper()]

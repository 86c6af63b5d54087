"""Where log files lie: a trail is the daily files of one thing, the gateway's or one session's."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from uuid import UUID

SESSIONS = "sessions"
_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NAME = re.compile(r"(?P<prefix>gateway-)?(?P<day>\d{4}-\d{2}-\d{2})\.log")


@dataclass(frozen=True, slots=True)
class Trail:
    """The files `<prefix>YYYY-MM-DD.log` of one folder, by UTC day."""

    folder: Path
    prefix: str = ""

    def path(self, day: date) -> Path:
        """The file of that day, be it there or not."""
        return self.folder / f"{self.prefix}{day:%Y-%m-%d}.log"

    def files(self) -> Mapping[date, Path]:
        """The files that are there, oldest first."""
        if not self.folder.is_dir():
            return {}
        found = {day: path for path in self.folder.iterdir() if (day := self._day(path)) and path.is_file()}
        return dict(sorted(found.items()))

    def _day(self, path: Path) -> date | None:
        match = _NAME.fullmatch(path.name)
        if match is None or (match["prefix"] or "") != self.prefix:
            return None
        try:
            return date.fromisoformat(match["day"])
        except ValueError:
            return None


def gateway_trail(logs: Path) -> Trail:
    """Everything the gateway logs."""
    return Trail(logs, "gateway-")


def session_trail(logs: Path, session: UUID) -> Trail:
    """What belongs to one session."""
    return Trail(logs / SESSIONS / str(session))


def session_trails(logs: Path) -> Mapping[UUID, Trail]:
    """The sessions that have a folder of their own."""
    parent = logs / SESSIONS
    if not parent.is_dir():
        return {}
    names = {path.name: path for path in parent.iterdir() if path.is_dir() and not path.is_symlink()}
    return {session: Trail(path) for name, path in names.items() if (session := session_of(name))}


def session_of(text: object) -> UUID | None:
    """The session meant by a log line's `session_id`; None for whatever could not be the name of our folder."""
    return UUID(text) if isinstance(text, str) and _ID.fullmatch(text) else None

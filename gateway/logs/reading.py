"""Logs read back: a session found by the beginning of its id, lines as they were and as they come."""

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from datetime import date
from pathlib import Path
from uuid import UUID

from pydantic import JsonValue

from gateway.domain.errors import OwnerMustAct
from gateway.logs.trails import Trail, session_trails

_LEVELS = logging.getLevelNamesMapping()


def find_session(logs: Path, prefix: str) -> UUID:
    """The one session with a log whose id begins so; raises `OwnerMustAct`."""
    wanted = prefix.strip().lower()
    found = sorted((session for session in session_trails(logs) if str(session).startswith(wanted)), key=str)
    if not found:
        raise OwnerMustAct(f"no session whose id begins with {prefix} has a log; `supaclaw sessions` lists them")
    if len(found) > 1:
        raise OwnerMustAct(f"{len(found)} sessions begin with {prefix}: {_few(found)}; write more of the id")
    return found[0]


class Tail:
    """The lines of a trail from one day on; each look gives what was added since the last, over midnights."""

    def __init__(self, trail: Trail, day: date, today: Callable[[], date]) -> None:
        self._trail = trail
        self._day = day
        self._today = today
        self._position = 0

    def lines(self) -> Iterator[str]:
        """What is new; a line still being written is left for the next look."""
        today = self._today()
        yield from self._added()
        if today > self._day:
            self._day, self._position = today, 0
            yield from self._added()

    def _added(self) -> Iterator[str]:
        try:
            file = self._trail.path(self._day).open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._position += len(line)
                yield line.decode(errors="replace").rstrip("\n")


def event_of(line: str) -> Mapping[str, JsonValue] | None:
    """What the line says; None for one that a crash or a full disk tore."""
    try:
        event: JsonValue = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) else None


def at_least(event: Mapping[str, JsonValue], level: str) -> bool:
    """Whether the event is as bad as `level`, or worse; one without a level counts as the worst."""
    own = str(event.get("level", "critical")).upper()
    return _LEVELS.get(own, logging.CRITICAL) >= _LEVELS[level.upper()]


def _few(sessions: list[UUID]) -> str:
    return ", ".join(map(str, sessions[:3])) + (", …" if len(sessions) > 3 else "")

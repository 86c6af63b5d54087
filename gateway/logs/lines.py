"""Lines of a log: for people, and read back from the files, as they were and as they come."""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Literal, TextIO, TypeAlias

from pydantic import JsonValue
from structlog.dev import ConsoleRenderer, plain_traceback

from gateway.domain.text.texts import printable
from gateway.logs.files import Trail

Event: TypeAlias = Mapping[str, JsonValue]
Level: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]
_LEVELS = logging.getLevelNamesMapping()


def readable(target: TextIO) -> Callable[[Mapping[str, object]], str]:
    """Makes a line of an event, with colours where `target` is a terminal that wants them.

    Nothing in an event can move the cursor, and only a traceback has lines of its own.
    """
    colours = target.isatty() and not os.environ.get("NO_COLOR")
    render = ConsoleRenderer(colors=colours, exception_formatter=plain_traceback, sort_keys=False)
    return lambda event: str(
        render(None, "", {printable(key, keep=""): _tame(key, value) for key, value in event.items()})
    )


def _tame(key: str, value: object) -> object:
    if not isinstance(value, str):
        return value
    return printable(value, keep="\n\t" if key in {"exception", "stack"} else "")


def looks(trail: Trail, day: date, today: Callable[[], date], most: int | None = None) -> Iterator[list[str]]:
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

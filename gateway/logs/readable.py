"""Log lines for people."""

import os
from collections.abc import Mapping
from typing import TextIO

from structlog.dev import ConsoleRenderer, plain_traceback

_BARE = frozenset({"timestamp", "level", "event", "logger", "logger_name", "exception", "stack"})
"""What the renderer shows as it is; of other facts it shows the repr if they hold one of these characters."""
_QUOTED = frozenset(" \t=\r\n\"'")


class Readable:
    """Makes one line of an event, with colours where `target` is a terminal that wants them."""

    def __init__(self, target: TextIO) -> None:
        colours = target.isatty() and not os.environ.get("NO_COLOR")
        self._render = ConsoleRenderer(colors=colours, exception_formatter=plain_traceback, sort_keys=False)

    def line(self, event: Mapping[str, object]) -> str:
        """The event and its facts. Nothing in it can move the cursor, and only a traceback has lines of its own."""
        return str(self._render(None, "", {key: _tame(key, value) for key, value in event.items()}))


def _tame(key: str, value: object) -> object:
    if not isinstance(value, str) or value.isprintable() or (key not in _BARE and not _QUOTED.isdisjoint(value)):
        return value
    kept = "\n\t" if key in {"exception", "stack"} else ""
    return "".join(char if char.isprintable() or char in kept else repr(char)[1:-1] for char in value)

"""Streams an answer to the terminal."""

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_MAX_ARGUMENTS = 100
_CONTROL_CHARS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@dataclass(slots=True)
class Screen:
    """Writes text to standard output as it arrives; it can only append."""

    interactive: bool
    _part: str = ""

    def show(self, event: Mapping[str, JsonValue]) -> None:
        """Show one event of the conversation."""
        match event:
            case {"type": "snapshot", "written": str(text)}:
                self._catch_up(text)
            case {"type": "text", "text": str(text)}:
                self._write(text)
            case {"type": "text_dropped"}:
                self._end_part()
            case {"type": "tool_started", "name": str(name), "arguments": str(arguments)}:
                self._end_part()
                self.note(f"· {name} {_short(arguments)}")
            case _:
                pass

    def finish(self, text: str) -> None:
        """Show the rest of the stored answer."""
        self._catch_up(text)
        self._end_part()

    def _catch_up(self, text: str) -> None:
        if not text.startswith(self._part):
            self._end_part()
        self._write(text[len(self._part) :])

    def _write(self, text: str) -> None:
        self._part += text
        sys.stdout.write(_printable(text) if self.interactive else text)
        sys.stdout.flush()

    def _end_part(self) -> None:
        if self._part and not self._part.endswith("\n"):
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._part = ""

    def note(self, text: str) -> None:
        """Print a note that is not part of the answer."""
        text = _printable(text)
        print(f"{_DIM}{text}{_PLAIN}" if _in_colour() else text, file=sys.stderr, flush=True)


def _printable(text: str) -> str:
    """Strip control characters: a model may repeat what strangers wrote."""
    return _CONTROL_CHARS.sub("", text)


def _in_colour() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and "NO_COLOR" not in os.environ


def _short(arguments: str) -> str:
    line = " ".join(arguments.split())
    return line if len(line) <= _MAX_ARGUMENTS else f"{line[:_MAX_ARGUMENTS]}…"

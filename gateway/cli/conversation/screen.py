"""Streams an answer to the terminal."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from pydantic import JsonValue

from gateway.cli.console import Style, echo
from gateway.cli.progress import slow

_MAX_ARGUMENTS = 100


@dataclass(slots=True)
class Screen:
    """Writes text to standard output as it arrives; it can only append."""

    interactive: bool
    _part: str = ""
    _thinking: ExitStack = field(default_factory=ExitStack)

    def wait(self) -> None:
        """Say that the answer is awaited, until its first word."""
        self._thinking.enter_context(slow("thinking …"))

    def stop_waiting(self) -> None:
        """Say so no more."""
        self._thinking.close()

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
            case {"type": "waiting", "model": str(model), "seconds": int() | float() as seconds}:
                self.note(f"· {model} can't answer now, next try in {seconds:.0f} s")
            case _:
                pass

    def finish(self, text: str) -> None:
        """Show the rest of the stored answer."""
        self._catch_up(text)
        self._end_part()

    def _catch_up(self, text: str) -> None:
        """Write what is missing; models put blank space around an answer that is not stored."""
        text, shown = text.lstrip(), self._part.lstrip()
        if text.rstrip() == shown.rstrip():
            return
        if not text.startswith(shown):
            self._end_part()
            shown = ""
        self._write(text[len(shown) :])

    def _write(self, text: str) -> None:
        self.stop_waiting()
        self._part += text
        echo(text.replace("\r", ""), end="")

    def _end_part(self) -> None:
        if self._part and not self._part.endswith("\n"):
            echo()
        self._part = ""

    def note(self, text: str) -> None:
        """Print a note that is not part of the answer."""
        self.stop_waiting()
        echo(lead=text, style=Style.DIM, error=True)


def _short(arguments: str) -> str:
    line = " ".join(arguments.split())
    return line if len(line) <= _MAX_ARGUMENTS else f"{line[:_MAX_ARGUMENTS]}…"

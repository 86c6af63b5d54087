"""A tool call, put together from the pieces of a stream as different servers send them."""

import json
import re
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gateway.domain.conversation.model import ToolCall
from gateway.domain.text.texts import GrowingText, storable

_NAME_PARTS = re.compile(r"(?:[\w-]+[.:/])*([A-Za-z_][\w-]*)(?::\d+)?")


@dataclass(slots=True)
class CallBuilder:
    """One call; `place` is that of its pieces: choice and index.

    Some servers repeat its name in each piece, some send its arguments again from the start.
    """

    place: tuple[int, int]
    id: str
    name: str = ""
    unknown: dict[str, Any] = field(default_factory=dict)
    """Its fields that we don't know."""
    _arguments: GrowingText = field(default_factory=GrowingText)
    _written: int = 0
    _begun: int = 0
    """Characters before the newest piece that begins an object."""

    def add(self, name: str, arguments: str) -> None:
        """Add a piece."""
        if name != self.name:
            self.name = name if name.startswith(self.name) else self.name + name
        if _begins_object(arguments):
            self._begun = self._written
        self._arguments.add(arguments)
        self._written += len(arguments)

    def ended_by(self, name: str, arguments: str) -> bool:
        """Whether this piece begins another call, though it has the same id or place."""
        if not (name and self._written and _begins_object(arguments)):
            return False
        before, other = str(self._arguments), bool(self.name) and not name.startswith(self.name)
        return (before != arguments or other) and before.rstrip().endswith("}") and _object(before) is not None

    def made(self) -> ToolCall:
        """The call as the model means it."""
        text = str(self._arguments)
        arguments = _object(text) or _object(text[self._begun :]) or text
        return ToolCall(storable(self.id), bare_name(storable(self.name)), storable(arguments) or "{}")


def bare_name(name: str) -> str:
    """The name of a tool, also from `functions.NAME` and `functions.NAME:0`."""
    found = _NAME_PARTS.fullmatch(name)
    return found[1] if found else name


def _begins_object(arguments: str) -> bool:
    return arguments.lstrip().startswith("{")


def _object(text: str) -> str | None:
    """The text if it is a JSON object, or the object inside a JSON string; None for any other text."""
    with suppress(ValueError, RecursionError):
        match json.loads(text):
            case dict():
                return text
            case str(inner) if isinstance(json.loads(inner), dict):
                return inner
            case None:
                return "{}"
    return None

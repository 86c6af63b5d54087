"""The objects of a JSON array, one at a time, however large the array is and whatever is wrong with some of them."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic import JsonValue, TypeAdapter

from gateway.domain.memory.imports import Damaged

MAX_OBJECT = 32 << 20
"""Bytes of one object."""

_OUTSIDE, _INSIDE = re.compile(rb'["{}\[\]]'), re.compile(rb'["\\]')
_FIRST_KEY = re.compile(rb'\{\s*("[^"\\]{1,60}")')
_OBJECT = TypeAdapter(dict[str, JsonValue])


@dataclass(frozen=True, slots=True)
class Object:
    """One object of the array, counted from 1, with the line it begins on."""

    number: int
    line: int
    value: dict[str, JsonValue]


def objects(name: str, read: Callable[[], bytes]) -> Iterator[Object | Damaged]:
    """Yield the objects of the array that `read` returns in pieces, "" at its end.

    After a damaged one it goes on at the next place where an object begins with the key that the first began with.
    """
    window = _Window(read)
    first_key: bytes | None = None
    number = 0
    while window.seek(b"{"):
        number += 1
        line, end = window.line, window.end_of_object()
        try:
            value = _OBJECT.validate_python(json.loads(bytes(window.data[:end]))) if end else None
        except (ValueError, RecursionError):
            value = None
        if value is not None and end:
            first_key = first_key or _key(window.data)
            yield Object(number, line, value)
            window.drop(end)
            continue
        yield Damaged(f"{name}:{line}", _why(number, end, window))
        window.resume(first_key or _key(window.data), end)


class _Window:
    """The part of the text that is being looked at; it begins where an object does."""

    def __init__(self, read: Callable[[], bytes]) -> None:
        self.data = bytearray()
        self.line = 1
        self.ended = False
        self._read = read

    def fill(self) -> bool:
        """Read on; False at the end."""
        chunk = self._read()
        self.data += chunk
        self.ended = not chunk
        return bool(chunk)

    def drop(self, end: int) -> None:
        """Move on by so many bytes."""
        self.line += self.data.count(b"\n", 0, end)
        del self.data[:end]

    def seek(self, mark: bytes) -> bool:
        """Move on to the mark; False if there is none."""
        while (at := self.data.find(mark)) < 0:
            self.drop(len(self.data))
            if not self.fill():
                return False
        self.drop(at)
        return True

    def end_of_object(self) -> int | None:
        """Where the object ends that the window begins with; None if it does not, or is too large."""
        depth, at, inside = 0, 0, False
        while True:
            found = (_INSIDE if inside else _OUTSIDE).search(self.data, at)
            if found is None:
                at = len(self.data)
                if at > MAX_OBJECT or not self.fill():
                    return None
                continue
            at, token = found.end(), found[0]
            if token == b"\\":
                at += 1
                if at > len(self.data):
                    self.fill()
            elif token == b'"':
                inside = not inside
            else:
                depth += 1 if token in b"{[" else -1
                if depth == 0:
                    return at

    def resume(self, key: bytes | None, end: int | None) -> None:
        """Move on behind a damaged object."""
        begins = re.search(rb"\{\s*" + re.escape(key), self.data[1 : end or None]) if key else None
        self.drop(1 + begins.start() if begins else end or len(self.data))


def _key(data: bytearray) -> bytes | None:
    found = _FIRST_KEY.match(data)
    return found[1] if found else None


def _why(number: int, end: int | None, window: _Window) -> str:
    if end:
        return f"item {number} is not valid JSON; skipped"
    if window.ended:
        return f"item {number} has no end: the file is incomplete"
    return f"item {number} is larger than {MAX_OBJECT >> 20} MiB; skipped"

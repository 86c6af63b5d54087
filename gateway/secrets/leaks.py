"""Finds live secret values in texts, in their usual encodings, and replaces them by references."""

import base64
import json
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from ahocorasick_rs import AhoCorasick

SHORTEST_SECRET = 8
"""Characters; shorter values occur in ordinary texts."""
_HEAD = 6
"""Characters of a value's beginning, by which most places of a text are skipped; all values are longer."""


class Leaks:
    """Replaces values by references; costs nothing without values. Only one thread may call `learn`."""

    def __init__(self, shortest: int = SHORTEST_SECRET) -> None:
        self._shortest = shortest
        self._values: Mapping[str, str] = {}
        self._search: _Search | None = None
        self._stale = False

    def learn(self, values: Mapping[str, str]) -> None:
        """Search for these values only from now on; each is mapped to its replacement."""
        self._stale = self._stale or values != self._values
        self._values = dict(values)

    def clean(self, text: str) -> tuple[str, frozenset[str]]:
        """`text` without values, and the replacements that were used."""
        search = self._current()
        return search.clean(text) if search else (text, frozenset())

    def split_growing(self, text: str) -> tuple[str, str]:
        """Split a growing text: its cleaned beginning, which is final, and its end, which may become a value."""
        search = self._current()
        return search.split_growing(text) if search else (text, "")

    def _current(self) -> "_Search | None":
        if self._stale:
            self._stale, self._search = False, _Search.of(self._values, self._shortest)
        return self._search


@dataclass(frozen=True, slots=True)
class _Search:
    automaton: "AhoCorasick"
    replacements: tuple[str, ...]
    """One per pattern."""
    ordered: tuple[str, ...]
    """The sorted patterns."""
    heads: frozenset[str]
    """The beginnings of the patterns."""
    longest: int

    @classmethod
    def of(cls, values: Mapping[str, str], shortest: int) -> "_Search | None":
        found: dict[str, str] = {}
        for value, shown in values.items():
            for form in encodings(value, shortest):
                found.setdefault(form, shown)
        if not found:
            return None
        from ahocorasick_rs import AhoCorasick, MatchKind

        heads = frozenset(form[:_HEAD] for form in found)
        automaton = AhoCorasick(list(found), matchkind=MatchKind.LeftmostLongest)
        return cls(automaton, tuple(found.values()), tuple(sorted(found)), heads, max(map(len, found)))

    def split_growing(self, text: str) -> tuple[str, str]:
        open_at = self._open_at(text)
        # A hit before the first open place can't grow into a longer one.
        hits = [hit for hit in self._hits(text) if hit[1] < open_at]
        rest = max([open_at, *(stop for _, _, stop in hits)])
        return self._replaced(text[:rest], hits), text[rest:]

    def _open_at(self, text: str) -> int:
        """Where the longest end of the text begins that could start a value; the text's length if there is none."""
        first = max(0, len(text) - self.longest + 1)
        return next((at for at in range(first, len(text)) if self._begins(text, at)), len(text))

    def _begins(self, text: str, at: int) -> bool:
        if len(text) - at >= _HEAD and text[at : at + _HEAD] not in self.heads:
            return False
        end = text[at:]
        first = bisect_right(self.ordered, end)
        return first < len(self.ordered) and self.ordered[first].startswith(end)

    def _hits(self, text: str) -> list[tuple[int, int, int]]:
        try:
            return self.automaton.find_matches_as_indexes(text)
        except UnicodeEncodeError:  # a lone surrogate, which UTF-8 can't hold
            return self.automaton.find_matches_as_indexes(text.encode("utf-8", "replace").decode())

    def clean(self, text: str) -> tuple[str, frozenset[str]]:
        hits = self._hits(text)
        return self._replaced(text, hits), frozenset(self.replacements[index] for index, _, _ in hits)

    def _replaced(self, text: str, hits: list[tuple[int, int, int]]) -> str:
        pieces, end = list[str](), 0
        for index, start, stop in hits:
            pieces += text[end:start], self.replacements[index]
            end = stop
        return "".join((*pieces, text[end:]))


def encodings(value: str, shortest: int = SHORTEST_SECRET) -> Iterator[str]:
    """Yield the encodings of a value; none if it is too short."""
    if len(value.strip()) < shortest:
        return
    raw = value.encode("utf-8", "surrogatepass")
    yield from (value, value.strip(), json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1])
    quoted = quote(value, safe="", errors="replace")
    yield from (quoted, quoted.lower(), quote(value, errors="replace"), quote_plus(value, errors="replace"))
    yield from (raw.hex(), raw.hex().upper())
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        for before in range(3):
            inside = _certain(encode(b"\0" * before + raw).decode(), before, len(raw))
            if len(inside) >= SHORTEST_SECRET:
                yield inside


def _certain(encoded: str, before: int, length: int) -> str:
    """The Base64 letters that depend on the value alone, not on the bytes around it."""
    return encoded[-(-before * 8 // 6) : (before + length) * 8 // 6]

"""Finds live secret values in texts, in their usual encodings; what is found becomes a reference."""

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
"""Characters of what is looked for: less is in ordinary texts."""
_HEAD = 6
"""Characters of a value's beginning by which most places of a text are passed over; no value is as short."""


class Leaks:
    """Replaces values by what stands for them; costs nothing while there is no value. Not for two threads' `learn`."""

    def __init__(self, shortest: int = SHORTEST_SECRET) -> None:
        self._shortest = shortest
        self._values: Mapping[str, str] = {}
        self._search: _Search | None = None
        self._stale = False

    def learn(self, values: Mapping[str, str]) -> None:
        """Look for these values, and no others, from now on; each with the text to put in its place."""
        self._stale = self._stale or values != self._values
        self._values = dict(values)

    def clean(self, text: str) -> tuple[str, frozenset[str]]:
        """`text` without values, and what stands for those that were in it."""
        search = self._current()
        return search.clean(text) if search else (text, frozenset())

    def settled(self, text: str) -> tuple[str, str]:
        """Of a text that grows: its beginning, cleaned for good, and its end, which may become a value."""
        search = self._current()
        return search.settled(text) if search else (text, "")

    def _current(self) -> "_Search | None":
        if self._stale:
            self._stale, self._search = False, _Search.of(self._values, self._shortest)
        return self._search


@dataclass(frozen=True, slots=True)
class _Search:
    automaton: "AhoCorasick"
    shown: tuple[str, ...]
    """For each pattern."""
    ordered: tuple[str, ...]
    """The patterns, sorted."""
    heads: frozenset[str]
    """How they begin."""
    longest: int

    @classmethod
    def of(cls, values: Mapping[str, str], shortest: int) -> "_Search | None":
        found: dict[str, str] = {}
        for value, shown in values.items():
            for form in encodings(value, shortest):
                found.setdefault(form, shown)
        if not found:
            return None
        heads = frozenset(form[:_HEAD] for form in found)
        longest = max(map(len, found))
        return cls(_automaton(list(found)), tuple(found.values()), tuple(sorted(found)), heads, longest)

    def settled(self, text: str) -> tuple[str, str]:
        # Where a hit begins before the first place that is open, no longer one can begin there any more.
        pieces, end, open_at = list[str](), 0, self._open_at(text)
        for index, start, stop in self._hits(text):
            if start >= open_at:
                break
            pieces += text[end:start], self.shown[index]
            end = stop
        rest = max(end, open_at)
        return "".join((*pieces, text[end:rest])), text[rest:]

    def _open_at(self, text: str) -> int:
        """Where the longest end of the text that is the beginning of a value begins; its length if none is."""
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
        except UnicodeEncodeError:  # half a character, which no text in UTF-8 has
            return self.automaton.find_matches_as_indexes(text.encode("utf-8", "replace").decode())

    def clean(self, text: str) -> tuple[str, frozenset[str]]:
        hits = self._hits(text)
        if not hits:
            return text, frozenset()
        pieces, end = list[str](), 0
        for index, start, stop in hits:
            pieces += text[end:start], self.shown[index]
            end = stop
        return "".join((*pieces, text[end:])), frozenset(self.shown[index] for index, _, _ in hits)


def encodings(value: str, shortest: int = SHORTEST_SECRET) -> Iterator[str]:
    """Yield the texts by which a value is recognised; none for one that is too short."""
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
    """The letters of Base64 that neither the bytes before the value nor those behind it change."""
    return encoded[-(-before * 8 // 6) : (before + length) * 8 // 6]


def _automaton(patterns: list[str]) -> "AhoCorasick":
    from ahocorasick_rs import AhoCorasick, MatchKind

    return AhoCorasick(patterns, matchkind=MatchKind.LeftmostLongest)

"""Long texts, cut into passages that overlap, each with the page it begins on."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

LENGTH = 1_000
"""Characters of a passage at most, some 250 tokens: what an embedder reads whole."""
OVERLAP = 150
MOST = 300
"""Passages of one text."""

_PAGE = re.compile(r"^--- page (\d+) ---\n", re.MULTILINE)
_BREAKS = ("\n\n", "\n", ". ", " ")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a text; `page` counts from 1, None where a text has no pages."""

    text: str
    page: int | None


def passages(text: str) -> tuple[Passage, ...]:
    """The pieces in order, at most `MOST`; a page never ends within one."""
    found = (Passage(piece, page) for page, content in _pages(text) for piece in _pieces(content))
    return tuple(passage for _, passage in zip(range(MOST), found, strict=False))


def _pages(text: str) -> Iterator[tuple[int | None, str]]:
    before, *rest = _PAGE.split(text)
    if before.strip():
        yield None, before
    for number, content in zip(rest[::2], rest[1::2], strict=True):
        yield int(number), content


def _pieces(text: str) -> Iterator[str]:
    """Cut at the last break of the best kind in the second half of what fits."""
    start = 0
    while start < len(text):
        end = _end(text, start)
        if piece := text[start:end].strip():
            yield piece
        if end >= len(text):
            return
        start = _start(text, end)


def _end(text: str, start: int) -> int:
    end = start + LENGTH
    if end >= len(text):
        return len(text)
    for mark in _BREAKS:
        if (at := text.rfind(mark, start + LENGTH // 2, end)) >= 0:
            return at + len(mark)
    return end


def _start(text: str, end: int) -> int:
    """Where the next one begins: at a word, a little before the end of the last."""
    at = text.find(" ", end - OVERLAP, end)
    return at + 1 if at >= 0 else end - OVERLAP

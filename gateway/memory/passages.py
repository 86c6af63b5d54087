"""Splits long texts into overlapping passages, each with its page."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

PASSAGE_LENGTH = 1_000
"""The most characters of a passage, some 250 tokens, which an embedding model reads in full."""
OVERLAP_LENGTH = 150
MAX_PASSAGES = 300
"""The most passages of one text."""

_PAGE = re.compile(r"^--- page (\d+) ---\n", re.MULTILINE)
_BREAKS = ("\n\n", "\n", ". ", " ")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of a text; `page` counts from 1, None if the text has no pages."""

    text: str
    page: int | None


def passages(text: str) -> tuple[Passage, ...]:
    """The passages in order, at most 300; none crosses a page."""
    found = (Passage(piece, page) for page, content in _pages(text) for piece in _pieces(content))
    return tuple(passage for _, passage in zip(range(MAX_PASSAGES), found, strict=False))


def _pages(text: str) -> Iterator[tuple[int | None, str]]:
    before, *rest = _PAGE.split(text)
    if before.strip():
        yield None, before
    for number, content in zip(rest[::2], rest[1::2], strict=True):
        yield int(number), content


def _pieces(text: str) -> Iterator[str]:
    """Cut at the last break of the best kind in the second half of a passage."""
    start = 0
    while start < len(text):
        end = _end(text, start)
        if piece := text[start:end].strip():
            yield piece
        if end >= len(text):
            return
        start = _start(text, end)


def _end(text: str, start: int) -> int:
    end = start + PASSAGE_LENGTH
    if end >= len(text):
        return len(text)
    for mark in _BREAKS:
        if (at := text.rfind(mark, start + PASSAGE_LENGTH // 2, end)) >= 0:
            return at + len(mark)
    return end


def _start(text: str, end: int) -> int:
    """The start of the next passage: a word, a little before the end of the last."""
    at = text.find(" ", end - OVERLAP_LENGTH, end)
    return at + 1 if at >= 0 else end - OVERLAP_LENGTH

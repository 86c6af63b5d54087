"""Splits long Markdown into parts that fit a messenger, at natural breaks."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate

MIN_LIMIT = 16
_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_SENTENCE_END = re.compile(r"""[.!?…]["')\]*_]*(?=\s)|[。！？]""")
_WHITE = re.compile(r"\s*")
_LONGEST_GRAPHEME = 32


def utf16_len(text: str) -> int:
    """The length in UTF-16 units, which messengers count."""
    return len(text) if text.isascii() else len(text) + sum(char > "\uffff" for char in text)


def utf16_tail(text: str, limit: int) -> str:
    """The end of `text`, at most `limit` UTF-16 units long."""
    units = text[-limit:].encode("utf-16-le", "surrogatepass")
    return units[-2 * limit :].decode("utf-16-le", "ignore")


def split(text: str, limit: int) -> tuple[str, ...]:
    """Split into parts of at most `limit` UTF-16 units (16 or more); only drops white space at the cuts.

    A fenced code block stays whole if it fits a part; otherwise it is closed at the cut and reopened.
    """
    if limit < MIN_LIMIT:
        raise ValueError(f"limit must be at least {MIN_LIMIT}")
    return tuple(part for part in _parts(text, limit) if part and not part.isspace())


@dataclass(frozen=True, slots=True)
class _Fence:
    """A fenced block: `start` of its opening line, its content, `stop` at the end of its closing line."""

    start: int
    content: int
    content_end: int
    stop: int
    opening: str
    closing: str


@dataclass(frozen=True, slots=True)
class _Cut:
    """The part ends before `at` and gets `closing`; the next one starts at `resume`."""

    at: int
    resume: int
    closing: str = ""


def _parts(text: str, limit: int) -> Iterator[str]:
    fences = _fences(text, limit)
    position, first = _next_start(text, 0), 0
    while position < len(text):
        while first < len(fences) and fences[first].stop <= position:
            first += 1
        prefix = _reopening(fences, first, position)
        end = _reach(text, position, limit - utf16_len(prefix))
        if end == len(text):
            yield prefix + text[position:].rstrip()
            return
        cut = _choose(text, fences, first, position, end, limit)
        body = text[position : cut.at]
        yield _closed(prefix + body, cut.closing) if cut.closing else (prefix + body).rstrip()
        position = cut.resume


def _closed(body: str, closing: str) -> str:
    return f"{body}{closing}" if body.endswith("\n") else f"{body}\n{closing}"


def _fences(text: str, limit: int) -> list[_Fence]:
    """All fenced blocks, in order; an unclosed one extends to the end."""
    found: list[_Fence] = []
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        marker, rest = line.group(1), line.group(2)
        if opened is None:
            if marker[0] == "~" or "`" not in rest:
                opened = line
        elif marker[0] == opened.group(1)[0] and len(marker) >= len(opened.group(1)) and not rest.strip():
            found.append(_fence(opened, line.start(), line.end(), limit))
            opened = None
    if opened is not None:
        found.append(_fence(opened, len(text), len(text), limit))
    return found


def _fence(opened: re.Match[str], content_end: int, stop: int, limit: int) -> _Fence:
    """The block; if its opening line is too long to repeat, it is cut like plain text."""
    opening = opened.group().rstrip()
    if utf16_len(opening) > limit // 4:
        return _Fence(opened.start(), opened.end(), content_end, stop, "", "")
    indent = opening[: len(opening) - len(opening.lstrip())]
    return _Fence(
        opened.start(), min(opened.end() + 1, content_end), content_end, stop, opening, f"{indent}{opened.group(1)}"
    )


def _reopening(fences: list[_Fence], first: int, position: int) -> str:
    """The opening line to repeat if `position` is inside a block."""
    if first == len(fences):
        return ""
    fence = fences[first]
    return f"{fence.opening}\n" if fence.opening and fence.content <= position < fence.stop else ""


def _reach(text: str, position: int, units: int) -> int:
    """The furthest index such that `text[position:index]` has at most `units` UTF-16 units."""
    window = text[position : position + units]
    if window.isascii():
        return position + len(window)
    return position + bisect_right(list(accumulate(1 + (char > "\uffff") for char in window)), units)


def _choose(text: str, fences: list[_Fence], first: int, position: int, end: int, limit: int) -> _Cut:
    """Where to end the part that starts at `position` and cannot go beyond `end`."""
    free = position
    for index in range(first, len(fences)):
        fence = fences[index]
        if fence.start >= end:
            break
        if end < fence.stop:
            if fence.start > position and _fits(text, fence, limit):
                return _Cut(fence.start, fence.start)
            return _inside(text, fence, position, end)
        free = fence.stop
    return _outside(text, position, free, end)


def _fits(text: str, fence: _Fence, limit: int) -> bool:
    return fence.stop - fence.start <= limit and utf16_len(text[fence.start : fence.stop]) <= limit


def _inside(text: str, fence: _Fence, position: int, end: int) -> _Cut:
    """A cut inside a block that is longer than a part: after a line, with room for the closing fence."""
    content = max(position, fence.content)
    last = min(end - len(fence.closing) - 1, fence.content_end)
    if last <= content:
        if fence.start > position:
            return _Cut(fence.start, fence.start)
        hard = _between_graphemes(text, position, end)
        return _Cut(hard, hard)
    if last == fence.content_end:
        return _Cut(last, _next_start(text, fence.stop), fence.closing)
    line = text.rfind("\n", content, last) + 1
    at = line if line > content else _between_graphemes(text, content, last)
    return _Cut(at, at, fence.closing)


def _outside(text: str, position: int, free: int, end: int) -> _Cut:
    """A cut in plain text, after `free`: in the second half of the part if there is any border."""
    middle = max(free, position + (end - position) // 2)
    at = _border(text, middle, end) or _border(text, free, middle) or (free if free > position else 0)
    at = at or _between_graphemes(text, position, end)
    return _Cut(at, _next_start(text, at))


def _border(text: str, start: int, end: int) -> int:
    """The last border between `start` and `end`: a blank line, else a line, a sentence or a space; else 0."""
    for mark in ("\n\n", "\n"):
        found = text.rfind(mark, start, end + len(mark))
        if start < found <= end:
            return found
    ends = [match.end() for match in _SENTENCE_END.finditer(text, start, end + 1) if match.end() <= end]
    if ends:
        return ends[-1]
    found = text.rfind(" ", start, end + 1)
    return found if start < found <= end else 0


def _next_start(text: str, at: int) -> int:
    """The start of the next part: after white space, but keeping its first line's indentation."""
    match = _WHITE.match(text, at)
    first = match.end() if match else at
    line = text.rfind("\n", at, first) + 1
    return line if line > at or at == 0 else first


def _between_graphemes(text: str, start: int, end: int) -> int:
    """An index in (start, end] between two graphemes, if there is one near `end`."""
    for index in range(end, max(start, end - _LONGEST_GRAPHEME), -1):
        if not _joined(text, index):
            return index
    return end


def _joined(text: str, index: int) -> bool:
    char, before = text[index], text[index - 1]
    extends = (
        unicodedata.category(char) in {"Mn", "Me", "Mc"} or char == "\u200d" or "\U0001f3fb" <= char <= "\U0001f3ff"
    )
    return extends or before == "\u200d" or (_is_flag_half(char) and _is_flag_half(before))


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"

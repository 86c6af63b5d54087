"""Splits long Markdown at natural breaks into parts that fit a messenger; code and tables stay whole if possible."""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_DELIMITER = re.compile(r"^ {0,3}[|:-][|: \t-]*$", re.MULTILINE)
_COLUMN = re.compile(r":?-+:?")
_ROWS = re.compile(r"(?:\n[^\n|]*+\|[^\n]*+)++")
_PIPE = re.compile(r"(?<!\\)\|")
_FORMATTING = re.compile(
    r"(?<!`)`++[^`\n]++`++|(?<![\w*_~])(?:\*{1,3}|_{1,3}|~~)(?=[^\s*_~])|\]\([^()\n]++\)|<https?:|^#{1,6} |(?<=\n\n)>",
    re.MULTILINE,
)
"""Code, emphasis, a link, a heading, a quote."""


@dataclass(frozen=True, slots=True)
class Block:
    """Fenced code or a table: `start` of its opening lines, its content, `stop` at the end of its closing line.

    A piece of the content is a block again between `opening` and `closing`, each on lines of its own.
    """

    start: int
    content: int
    content_end: int
    stop: int
    opening: str
    closing: str = ""


def find_blocks(text: str) -> list[Block]:
    """Every fenced block and every table, in order."""
    fences, tables, after = _fences(text), list[Block](), 0
    for line in _DELIMITER.finditer(text):
        table = _table(text, line) if line.start() >= after else None
        if table is not None:
            after = table.stop
            near = bisect_left(fences, table.stop, key=lambda fence: fence.start)
            tables += [table] if near == 0 or fences[near - 1].stop <= table.start else []
    return sorted([*fences, *tables], key=lambda block: block.start)


def find_marks(text: str, within: list[Block]) -> list[int]:
    """The starts of formatted pieces; a block counts as one piece."""
    found, passed = list[int](), 0
    for mark in _FORMATTING.finditer(text):
        while passed < len(within) and within[passed].start <= mark.start():
            found.append(within[passed].start)
            passed += 1
        if passed == 0 or within[passed - 1].stop <= mark.start():
            found += [mark.start()] * (2 if mark.group() in {"***", "___"} else 1)
    return [*found, *(block.start for block in within[passed:])]


def _fences(text: str) -> list[Block]:
    """One that is never closed reaches to the end."""
    found: list[Block] = []
    opened: re.Match[str] | None = None
    for line in _FENCE.finditer(text):
        marker, rest = line.group(1), line.group(2)
        if opened is None:
            if marker[0] == "~" or "`" not in rest:
                opened = line
        elif marker[0] == opened.group(1)[0] and len(marker) >= len(opened.group(1)) and not rest.strip():
            found.append(_fence(opened, line.start(), line.end()))
            opened = None
    if opened is not None:
        found.append(_fence(opened, len(text), len(text)))
    return found


def _fence(opened: re.Match[str], content_end: int, stop: int) -> Block:
    opening = opened.group().rstrip()
    indent = opening[: len(opening) - len(opening.lstrip())]
    content = min(opened.end() + 1, content_end)
    return Block(opened.start(), content, content_end, stop, opening, f"{indent}{opened.group(1)}")


def _table(text: str, line: re.Match[str]) -> Block | None:
    """The table whose head this line divides from its rows; None if there is none."""
    start = text.rfind("\n", 0, max(0, line.start() - 1)) + 1
    opening = text[start : line.end()]
    head, _, under = opening.partition("\n")
    columns = _cells(under)
    if "|" not in opening or len(_cells(head)) != len(columns) or not all(map(_COLUMN.fullmatch, columns)):
        return None
    rows = _ROWS.match(text, line.end())
    return Block(start, line.end() + 1, rows.end(), rows.end(), opening) if rows else None


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in _PIPE.split(row.strip().removeprefix("|").removesuffix("|"))]


MIN_LIMIT = 16
_SENTENCE_END = re.compile(r"""[.!?…]["')\]*_]*(?=\s)|[。！？]""")
_WHITE = re.compile(r"\s*")
_LONGEST_GRAPHEME = 32


def utf16_len(text: str) -> int:
    """The length in UTF-16 units, which messengers count."""
    return len(text) if text.isascii() else len(text) + sum(char > "\uffff" for char in text)


def utf16_tail(text: str, limit: int) -> str:
    """The end of `text`, at most `limit` UTF-16 units long."""
    return text[-limit:].encode("utf-16-le", "surrogatepass")[-2 * limit :].decode("utf-16-le", "ignore")


def split(text: str, limit: int, most_marks: int | None = None) -> tuple[str, ...]:
    """Parts of at most `limit` UTF-16 units (16 or more) and about `most_marks` formatted pieces (3 or more).

    Only white space at the cuts is dropped. A fenced code block or a table stays whole if it fits a part; otherwise it
    is closed at the cut and reopened, a table with its head.
    """
    if limit < MIN_LIMIT:
        raise ValueError(f"limit must be at least {MIN_LIMIT}")
    return tuple(part for part in _parts(text, limit, most_marks) if part and not part.isspace())


@dataclass(frozen=True, slots=True)
class _Cut:
    """The part ends before `at` and gets `closing`; the next one starts at `resume`."""

    at: int
    resume: int
    closing: str = ""


def _parts(text: str, limit: int, most_marks: int | None) -> Iterator[str]:
    found = find_blocks(text)
    begins = [] if most_marks is None else find_marks(text, found)
    whole = [each if utf16_len(each.opening) <= limit // 3 else replace(each, opening="", closing="") for each in found]
    position, first = _next_start(text, 0), 0
    while position < len(text):
        while first < len(whole) and whole[first].stop <= position:
            first += 1
        prefix = _reopening(whole, first, position)
        end = _reach(text, position, limit - utf16_len(prefix))
        one_more = bisect_left(begins, position) + (most_marks or 1) - bool(prefix)
        if one_more < len(begins):
            end = min(end, begins[one_more])
        if end == len(text):
            yield prefix + text[position:].rstrip()
            return
        cut = _choose(text, whole, first, position, end, limit)
        body = text[position : cut.at]
        yield _closed(prefix + body, cut.closing) if cut.closing else (prefix + body).rstrip()
        position = cut.resume


def _closed(body: str, closing: str) -> str:
    return f"{body}{closing}" if body.endswith("\n") else f"{body}\n{closing}"


def _reopening(blocks: list[Block], first: int, position: int) -> str:
    """The opening line to repeat if `position` is inside a block."""
    if first == len(blocks):
        return ""
    block = blocks[first]
    return f"{block.opening}\n" if block.opening and block.content <= position < block.stop else ""


def _reach(text: str, position: int, units: int) -> int:
    """The furthest index such that `text[position:index]` has at most `units` UTF-16 units."""
    window = text[position : position + units]
    if window.isascii():
        return position + len(window)
    return position + bisect_right(list(accumulate(1 + (char > "\uffff") for char in window)), units)


def _choose(text: str, blocks: list[Block], first: int, position: int, end: int, limit: int) -> _Cut:
    """The end of the part that starts at `position`, at most `end`."""
    free = position
    for index in range(first, len(blocks)):
        block = blocks[index]
        if block.start >= end:
            break
        if end < block.stop:
            if block.start > position and _fits(text, block, limit):
                return _Cut(block.start, block.start)
            return _inside(text, block, position, end)
        free = block.stop
    return _outside(text, position, free, end)


def _fits(text: str, block: Block, limit: int) -> bool:
    return block.stop - block.start <= limit and utf16_len(text[block.start : block.stop]) <= limit


def _inside(text: str, block: Block, position: int, end: int) -> _Cut:
    """A cut inside a block that is longer than a part: after a line, with room to close it."""
    content = max(position, block.content)
    last = min(end - len(block.closing) - 1, block.content_end)
    if last <= content:
        if block.start > position:
            return _Cut(block.start, block.start)
        hard = _between_graphemes(text, position, end)
        return _Cut(hard, hard)
    if last == block.content_end:
        return _Cut(last, _next_start(text, block.stop), block.closing)
    line = text.rfind("\n", content, last) + 1
    at = line if line > content else _between_graphemes(text, content, last)
    return _Cut(at, at, block.closing)


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
    near = range(end, max(start, end - _LONGEST_GRAPHEME), -1)
    return next((index for index in near if not _joined(text, index)), end)


def _joined(text: str, index: int) -> bool:
    char, before = text[index], text[index - 1]
    extends = (
        unicodedata.category(char) in {"Mn", "Me", "Mc"} or char == "\u200d" or "\U0001f3fb" <= char <= "\U0001f3ff"
    )
    return extends or before == "\u200d" or (_is_flag_half(char) and _is_flag_half(before))


def _is_flag_half(char: str) -> bool:
    return "\U0001f1e6" <= char <= "\U0001f1ff"

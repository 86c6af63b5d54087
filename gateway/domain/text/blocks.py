"""Blocks of Markdown that are not cut like running text, and what in a text has a look of its own."""

import re
from bisect import bisect_left
from dataclasses import dataclass

_FENCE = re.compile(r"^[ \t]*(`{3,}|~{3,})([^\n]*)$", re.MULTILINE)
_DELIMITER = re.compile(r"^ {0,3}[|:-][|: \t-]*$", re.MULTILINE)
_COLUMN = re.compile(r":?-+:?")
_ROWS = re.compile(r"(?:\n[^\n|]*+\|[^\n]*+)++")
_PIPE = re.compile(r"(?<!\\)\|")
_MARK = re.compile(
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
    """Where each piece with a look of its own begins; of the blocks in the text, each is one."""
    found, passed = list[int](), 0
    for mark in _MARK.finditer(text):
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

"""Markdown as its blocks: bullets with what is below them, and paragraphs, each under its headings."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from gateway.importers.reading.files import Line

MAX_BLOCK = 4_000
"""Characters of a block."""

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_BULLET = re.compile(r"(\s*)(?:[-*+]|\d{1,9}[.)])\s+(.*)")
_RULE = re.compile(r"\s*([-*_])\s*(?:\1\s*){2,}$")
_FENCE = re.compile(r"\s*(```|~~~)")
_DATE = re.compile(r"\b(20\d\d|19\d\d)-(\d\d)-(\d\d)\b")


@dataclass(slots=True)
class Block:
    """A top-level bullet with all that is indented below it, or a paragraph; `cut` if it was too long."""

    line: int
    headings: tuple[str, ...]
    bullet: bool
    indent: int = 0
    lines: list[str] = field(default_factory=list)
    cut: bool = False
    _length: int = 0

    @property
    def text(self) -> str:
        """Its lines, without the bullet."""
        return "\n".join(self.lines).strip()

    @property
    def day(self) -> datetime | None:
        """The first date that it or a heading of it names, at noon UTC, which is that day in most places."""
        for text in (self.text, *reversed(self.headings)):
            if found := _DATE.search(text):
                try:
                    day = date(*map(int, found.groups()))
                except ValueError:
                    continue
                return datetime(day.year, day.month, day.day, 12, tzinfo=UTC)
        return None

    def add(self, line: Line, text: str) -> None:
        """Append a line, as far as there is room."""
        room = MAX_BLOCK - self._length
        self.cut = self.cut or line.cut or len(text) > room
        if room > 0:
            self.lines.append(text[:room])
        self._length += len(text) + 1


def blocks(lines: Iterable[Line]) -> Iterator[Block]:
    """Yield the blocks of a text in order, without comments, rules and front matter."""
    headings: dict[int, str] = {}
    block: Block | None = None
    fenced = False
    for line in _visible(lines):
        fenced = fenced != bool(_FENCE.match(line.text))
        heading = None if fenced else _HEADING.match(line.text)
        bullet = None if fenced else _BULLET.match(line.text)
        if heading or (block and not fenced and _ends(block, line.text, bullet)):
            if block and block.text:
                yield block
            block = None
        if heading:
            level = len(heading[1])
            headings = {each: text for each, text in headings.items() if each < level} | {level: heading[2]}
        elif block is not None:
            block.add(line, line.text)
        elif line.text.strip() and not _RULE.match(line.text):
            path = tuple(headings[each] for each in sorted(headings))
            block = Block(line.number, path, bullet is not None, len(bullet[1].expandtabs()) if bullet else 0)
            block.add(line, bullet[2] if bullet else line.text)
    if block and block.text:
        yield block


def _ends(block: Block, text: str, bullet: re.Match[str] | None) -> bool:
    """Whether the line is none of the block's."""
    if _RULE.match(text):
        return True
    if not text.strip():
        return not block.bullet
    if bullet:
        return not block.bullet or len(bullet[1].expandtabs()) <= block.indent
    return block.bullet and not text[:1].isspace() and not block.lines[-1].strip()


def _visible(lines: Iterable[Line]) -> Iterator[Line]:
    """Yield the lines outside of `<!-- -->` and of the front matter."""
    hidden, front = False, False
    for line in lines:
        if line.text.strip() == "---" and (line.number == 1 or front):
            front = not front
            continue
        if front:
            continue
        text, hidden = _without_comments(line.text, hidden)
        if text is not None:
            yield Line(line.number, text, line.cut)


def _without_comments(text: str, hidden: bool) -> tuple[str | None, bool]:
    """What of the line is in no comment, None if that is nothing; and whether the next line begins in one."""
    kept: list[str] = []
    touched = hidden
    while text:
        mark = "-->" if hidden else "<!--"
        before, found, text = text.partition(mark)
        if not hidden:
            kept.append(before)
        if found:
            hidden, touched = not hidden, True
    shown = "".join(kept)
    return (None if touched and not shown.strip() else shown.rstrip()), hidden

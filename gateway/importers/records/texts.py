"""Times and texts of exported messages, the blocks of Markdown, and the facts in a file of notes."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from itertools import groupby
from pathlib import Path, PurePath
from typing import ClassVar, TypeAlias
from zoneinfo import ZoneInfo

from pydantic import JsonValue, TypeAdapter

from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import fields_of
from gateway.domain.memory.imports import Damaged, ImportedMemory, ImportedMessage, Passed, Record, Role
from gateway.domain.memory.memories import Category
from gateway.domain.principals import Label
from gateway.importers import Source
from gateway.importers.records.files import ArrayItem, Line, Reader, array_items

_EARLIEST, _LATEST = datetime(1990, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
_MARK, _PRIVATE = re.compile("\ue200([^\ue201]*)\ue201"), re.compile("[\ue200-\ue206]")
_LENTICULAR = re.compile("【[^】]{0,40}†[^】]{0,80}】")
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)([-_ .].*)?\.md$")
_KINDS = ("image", "audio", "video", "file", "document")
_TIME = TypeAdapter(datetime)
_USER, _ASSISTANT = ("user", "human", "True"), ("assistant", "False")
"""The roles of the messages that are imported, as programs call them; True is of the key "isCreatedByUser"."""
NOT_SAID = Passed("of the system or a tool")


def time_of(value: JsonValue) -> datetime | None:
    """The time of seconds or milliseconds since 1970, or of ISO text; None if it isn't one between 1990 and 2100."""
    with suppress(ValueError, OverflowError):
        at = _TIME.validate_python(value)
        at = at if at.tzinfo else at.replace(tzinfo=UTC)
        return at if _EARLIEST <= at <= _LATEST else None
    return None


def day_of(path: Path) -> date | None:
    """The day that the name of a daily log gives; None for other files."""
    found = _DAY.match(path.name)
    with suppress(ValueError):
        return date.fromisoformat(found[1]) if found else None
    return None


def text_of(parts: JsonValue) -> str:
    """The text of a string, or of a list of strings and typed parts; other parts are named in brackets."""
    found = parts if isinstance(parts, list) else [parts] if isinstance(parts, str) else []
    text = "\n".join(text for part in found if (text := _part_text(part)))
    return _LENTICULAR.sub("", _PRIVATE.sub("", _MARK.sub(_words_of_mark, text))).strip()


def _words_of_mark(mark: re.Match[str]) -> str:
    """The words that a mark of ChatGPT's citations stands for, if any."""
    kind, _, rest = mark[1].partition("\ue202")
    quoted = re.findall(r'"([^"]*)"', rest) if kind == "entity" else []
    return quoted[1] if len(quoted) > 1 else rest.partition("\ue202")[0] if kind == "url" else ""


def said(role: str, text: str, at: JsonValue, place: str, key: JsonValue, label: Label) -> Record:
    """A message, or what it is counted as."""
    said_by: Role | None = "user" if role in _USER else "assistant" if role in _ASSISTANT else None
    if said_by is None:
        return NOT_SAID
    return ImportedMessage(said_by, text, time_of(at), place, label, text_or_empty(key)) if text else Passed("empty")


def text_or_empty(value: JsonValue) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


Fields: TypeAlias = dict[str, JsonValue]


def items_of(value: JsonValue) -> list[Fields]:
    """The objects of a list, or of an object of objects."""
    found = value if isinstance(value, list) else fields_of(value).values()
    return [each for each in found if isinstance(each, dict)]


Parser: TypeAlias = Callable[[str, ArrayItem, Reader], Iterator[Record]]
"""Yields the records of an object, given its place."""


ANY = "*.json"


def export(expects: str, mark: bytes, parts: Mapping[str, Parser], into: re.Pattern[bytes] | None = None) -> Source:
    """The source of an export, whose first files have the `mark`; its files by name, a file on its own may have any.

    Files of other names are counted as left out. `into` is for objects too large to be held (`array_items`).
    In a folder, files of `ANY` name are not looked for.
    """
    first = next(iter(parts))

    def matches(path: Path) -> bool:
        return (path.is_file() or first != ANY) and has_near_start(path, first, mark)

    def read(path: Path, reader: Reader) -> Iterator[Record]:
        with reader.open_chunks(path) as files:
            for name, read_chunk in files:
                named = (parse for pattern, parse in parts.items() if PurePath(name).match(pattern))
                parse = next(named, parts[first] if name == path.name and path.is_file() else None)
                if parse is None:
                    yield from reader.left_out(name)
                    continue
                for found in array_items(name, read_chunk, into):
                    place = f"{name}:{found.line}" if isinstance(found, ArrayItem) else ""
                    yield from [found] if isinstance(found, Damaged) else parse(place, found, reader)

    return Source(expects, matches, read, files=tuple(parts))


def has_near_start(path: Path, pattern: str, mark: bytes) -> bool:
    """Whether a file has this regular expression near its beginning, or in a folder or ZIP one whose name matches."""
    with suppress(OwnerMustAct), Reader(ZoneInfo("UTC")).open_chunks(path) as files:
        named = (read for name, read in files if name == path.name or PurePath(name).match(pattern))
        return any(re.search(mark, read()) for read in named)
    return False


def _part_text(part: JsonValue) -> str:
    if isinstance(part, str):
        return part.strip()
    if not isinstance(part, dict):
        return ""
    kind = text_or_empty(part.get("type")) or text_or_empty(part.get("content_type"))
    if kind in {"text", "input_text", "output_text", "audio_transcription"}:
        return text_or_empty(part.get("text")).strip()
    if kind in {"thinking", "toolCall", "tool_use", "tool_result", "toolResult", "token_budget"}:
        return ""
    return f"[{next((each for each in _KINDS if each in kind), kind[:40] or 'attachment')}]"


MAX_TITLE_CHARS = 1_000
"""Characters of a conversation's title that its place quotes; the writer cuts it once secrets are replaced."""
MAX_BLOCK_CHARS = 4_000

_HEADING = re.compile(r"(#{1,6})\s+(.*?)\s*#*$")
_BULLET = re.compile(r"(\s*)(?:[-*+]|\d{1,9}[.)])\s+(.*)")
_RULE = re.compile(r"\s*(?:([-*_])\s*(?:\1\s*){2,}|§\s*)$")
_COMMENT = re.compile("<!--.*?(?P<end>-->|$)")
_FENCE = re.compile(r"\s*(```|~~~)")
_DATE = re.compile(r"\b(20\d\d|19\d\d)-(\d\d)-(\d\d)\b")


@dataclass(slots=True, kw_only=True)
class CutLines:
    """Lines up to `MAX_CHARS` in all; `cut` if some text was left out."""

    MAX_CHARS: ClassVar[int]

    lines: list[str] = field(default_factory=list)
    cut: bool = False
    _length: int = 0

    @property
    def text(self) -> str:
        """The lines as one text."""
        return "\n".join(self.lines).strip()

    def add(self, line: Line, text: str) -> None:
        """Append the text of a line, as far as there is room."""
        room = self.MAX_CHARS - self._length
        self.cut = self.cut or line.cut or len(text) > room
        if room > 0:
            self.lines.append(text[:room])
        self._length += len(text) + 1

    def damage(self, place: str) -> list[Record]:
        """A note that the text was cut, if it was."""
        return [Damaged(place, f"only its first {self.MAX_CHARS:,} characters were taken")] if self.cut else []


@dataclass(slots=True)
class Block(CutLines):
    """A top-level bullet with all that is indented below it, without its mark, or a paragraph."""

    MAX_CHARS = MAX_BLOCK_CHARS

    line: int
    headings: tuple[str, ...]
    bullet: bool
    indent: int = 0

    @property
    def day(self) -> datetime | None:
        """The first date in the text, else in the nearest heading, at noon UTC, which is that day in most places."""
        for text in (self.text, *reversed(self.headings)):
            if found := _DATE.search(text):
                with suppress(ValueError):
                    return datetime.fromisoformat(f"{found[0]}T12:00Z")
        return None


def blocks(lines: Iterable[Line]) -> Iterator[Block]:
    """Yield the blocks of a text in order, without comments, rules and front matter."""
    headings: dict[int, str] = {}
    block: Block | None = None
    fenced = False
    for line in _visible(lines):
        fenced = fenced != bool(_FENCE.match(line.text))
        heading = None if fenced else _HEADING.match(line.text)
        bullet = None if fenced else _BULLET.match(line.text)
        if heading or (block and not fenced and _ends_block(block, line.text, bullet)):
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


def _ends_block(block: Block, text: str, bullet: re.Match[str] | None) -> bool:
    """Whether the line is outside of the block."""
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
    """The text outside of comments, None if the line is all comment; and whether the next line begins in one."""
    whole = f"<!--{text}" if hidden else text
    comments, outside = list(_COMMENT.finditer(whole)), _COMMENT.sub("", whole)
    open_ended = bool(comments) and not comments[-1]["end"]
    return (None if comments and not outside.strip() else outside.rstrip()), open_ended


CATEGORIES = {
    Category.PREFERENCE: ("preference", "like"),
    Category.DECISION: ("decision",),
    Category.FACT: ("fact",),
    Category.PROJECT: ("project",),
    Category.PERSON: ("people", "person", "contact", "famil"),
    Category.CORRECTION: ("correction", "mistake"),
}
"""The category of the facts below a heading, by beginnings of words in it."""

_EMPTY_WORDS = re.compile(
    "active|and|context|current|general|important|key|learnings?|long|memor(y|ies)|misc|my|notes?|of|open|other|term|the|user"
)
"""Words of headings that say nothing about a fact."""


def facts_in(text: str, name: str, about: str = "", *, proposed: bool = False) -> Iterator[Record]:
    """Yield a memory, or a proposal, for each block of a text of this name."""
    lines = (Line(number, line, cut=False) for number, line in enumerate(text.splitlines(), start=1))
    return facts(lines, name, about=about, proposed=proposed)


def facts(
    lines: Iterable[Line], name: str, *tags: str, whole: bool = False, about: str = "", proposed: bool = False
) -> Iterator[Record]:
    """Yield a memory for each block, with `whole` one for each section without bullets; `about` heads them all."""
    for _, section in groupby(blocks(lines), key=lambda block: block.headings):
        found = list(section)
        for block in [_joined_blocks(found)] if whole and not any(each.bullet for each in found) else found:
            place, block.headings = f"{name}:{block.line}", ("", about, *block.headings) if about else block.headings
            category = _category(block.headings)
            yield ImportedMemory(_fact_text(block), place, Label.OWNER, category, tags, block.day, proposed)
            yield from block.damage(place)


def _joined_blocks(found: list[Block]) -> Block:
    lines = [line for block in found for line in (*block.lines, "")]
    text = "\n".join(lines).strip()
    cut = len(text) > MAX_BLOCK_CHARS or any(block.cut for block in found)
    return Block(found[0].line, found[0].headings, bullet=False, lines=[text[:MAX_BLOCK_CHARS]], cut=cut)


def _fact_text(block: Block) -> str:
    """The text, after its heading if that says what the fact is about."""
    about = block.headings[-1] if len(block.headings) > 1 else ""
    says = any(not _EMPTY_WORDS.fullmatch(word) and not _category_of(word) for word in _words(about))
    return f"{about}: {block.text}" if says else block.text


def _category(headings: tuple[str, ...]) -> Category:
    """The category that the nearest heading names, else context."""
    categories = (_category_of(word) for heading in reversed(headings) for word in _words(heading))
    return next(filter(None, categories), Category.CONTEXT)


def _category_of(word: str) -> Category | None:
    return next((category for category, beginnings in CATEGORIES.items() if word.startswith(beginnings)), None)


def _words(heading: str) -> list[str]:
    return re.findall(r"\w+", heading.casefold())

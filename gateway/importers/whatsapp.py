"""A chat that WhatsApp exported as text: lines that anybody in the chat can forge."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path, PurePath
from zipfile import is_zipfile
from zoneinfo import ZoneInfo

from gateway.domain.memory.imports import MAX_TEXT, ImportedMessage, ImportedSession, Passed, Record
from gateway.domain.principals import Label
from gateway.importers import Source
from gateway.importers.records.files import Line, Reader, text_lines
from gateway.importers.records.texts import CutLines, has_near_start

_NAMES = ("_chat.txt", "WhatsApp*.txt")
_LINE = re.compile(
    r"[\u200e\u200f]*\[?(\d{1,4})[./-](\d{1,2})[./-](\d{1,4}),?\s+(\d{1,2})[:.](\d\d)(?:[:.](\d\d))?\s*([AP]\.?M\.?)?\]?"
    r"\s*(?:-\s+)?(?:([^:]{1,80}): )?(.*)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class _Said(CutLines):
    """A message while its lines are read; a notice has no sender."""

    MAX_CHARS = MAX_TEXT

    at: datetime | None
    sender: str
    line: int


@dataclass(slots=True)
class _Chat:
    """A chat while it is read; `months_first` is how its dates are written."""

    name: str
    zone: ZoneInfo
    months_first: bool
    repeats: Counter[str] = field(default_factory=Counter)

    def records(self, lines: Iterable[Line]) -> Iterator[Record]:
        """Yield the session and its messages."""
        yield ImportedSession(self.name, None, self.name)
        said: _Said | None = None
        for line in lines:
            if found := _LINE.match(line.text):
                yield from self._records_of(said)
                said = _Said(at=self._time(found), sender=(found[8] or "").strip("\u200e ~"), line=line.number)
            if said:
                said.add(line, (found[9] if found else line.text).strip("\u200e\u200f"))
        yield from self._records_of(said)

    def _records_of(self, said: _Said | None) -> Iterator[Record]:
        if said is None:
            return
        place = f"{self.name}:{said.line}"
        if not (said.sender and said.text):
            yield Passed("notices")
            return
        key = sha256(f"{said.at} {said.sender} {said.text}".encode()).hexdigest()[:32]
        self.repeats[key] += 1
        text = f"{said.sender}: {said.text}"
        yield ImportedMessage("user", text, said.at, place, f"{key}-{self.repeats[key]}")
        yield from said.damage(place)

    def _time(self, found: re.Match[str]) -> datetime | None:
        first, second, third, hour, minute = (int(found[group]) for group in range(1, 6))
        year, month, day = (third, first, second) if self.months_first else (third, second, first)
        if first > 31:
            year, month, day = first, second, third
        if found[7]:
            hour = hour % 12 + 12 * (found[7][0] in "Pp")
        try:
            year += 2000 if year < 100 else 0
            return datetime(year, month, day, hour, minute, int(found[6] or 0), tzinfo=self.zone)
        except ValueError:
            return None


def _read(path: Path, reader: Reader) -> Iterator[Record]:
    silent = replace(reader, advance=None)
    with reader.open_chunks(path) as files, silent.open_chunks(path) as again:
        for (name, read), (_, read_again) in zip(files, again, strict=True):
            if len(files) > 1 and not any(PurePath(name).match(pattern) for pattern in _NAMES):
                yield Passed(f"{PurePath(name).suffix or 'other'} files")
                continue
            titled = path.stem if PurePath(name).name == _NAMES[0] and is_zipfile(path) else PurePath(name).stem
            yield from _Chat(titled, reader.zone, _months_first(text_lines(read_again))).records(text_lines(read))


def _matches(path: Path) -> bool:
    named = path.is_dir() or is_zipfile(path) or any(path.match(name) for name in _NAMES)
    return named and any(has_near_start(path, name, rb"\d[./-]\d{1,2}[./-]\d{1,4},?\s") for name in _NAMES)


def _months_first(lines: Iterable[Line]) -> bool:
    """Whether dates are written as in the USA: a second number above 12 says so, else the 12-hour clock."""
    dated = [found for line in lines if (found := _LINE.match(line.text))]
    days_first = any(int(found[1]) > 12 for found in dated)
    return not days_first and any(int(found[2]) > 12 or found[7] for found in dated)


SOURCES = {
    "whatsapp": Source(
        "a chat that WhatsApp exported, as _chat.txt or ZIP", _matches, _read, most_trusted=Label.UNTRUSTED
    )
}

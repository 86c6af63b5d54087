"""Daily logs: files named YYYY-MM-DD.md, with sessions under headings that begin with a time.

    ## 09:15
    **User** 09:15:02: Good morning.
    **Assistant** 09:15:04: Good morning!

Text that nobody is named for is a note; a file without any times is one session of notes, one under each heading.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from typing import Literal
from zoneinfo import ZoneInfo

from gateway.domain.memory.imports import MAX_TEXT, Damaged, ImportedMessage, ImportedSession, Record
from gateway.importers import Source
from gateway.importers.records.files import Line, Reader

_NAME = re.compile(r"(\d{4})-(\d\d)-(\d\d)([-_ .].*)?\.md$")
_CLOCK = r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?"
_HEADING = re.compile(r"#{1,6}\s+(.*)")
_TIMED = re.compile(rf"(?:\d{{4}}-\d\d-\d\d[ T])?{_CLOCK}(?!\d)[\s:–—-]*(.*)")
_BOLD = re.compile(
    rf"\*\*(user|human|you|me|owner|assistant|agent|ai|bot):?\*\*:?\s*(?:[(\[]?{_CLOCK}[)\]]?)?:?\s*(.*)", re.I
)
_PLAIN = re.compile(rf"(user|human|assistant|agent)\s*(?:[(\[]?{_CLOCK}[)\]]?)?:\s+(.*)", re.I)
_ASSISTANTS = frozenset({"assistant", "agent", "ai", "bot"})


def _read(path: Path, reader: Reader) -> Iterator[Record]:
    for file in [path] if path.is_file() else logs_in(path):
        if day := day_of(file):
            yield from _Log(file.name, day, reader.zone).records(reader.lines(file))
        else:
            yield Damaged(file.name, "its name is not a date; call it like 2026-03-01.md")


def logs_in(folder: Path) -> list[Path]:
    """The daily logs of a folder, the oldest first."""
    return sorted(each for each in folder.iterdir() if each.is_file() and day_of(each))


def day_of(path: Path) -> date | None:
    """The day that a daily log is of, by its name."""
    found = _NAME.match(path.name)
    try:
        return date(int(found[1]), int(found[2]), int(found[3])) if found else None
    except ValueError:
        return None


@dataclass(slots=True)
class _Said:
    """A message as its lines come; `named` if the log says who said it."""

    session: ImportedSession
    role: Literal["user", "assistant"]
    at: datetime | None
    line: int
    named: bool
    lines: list[str] = field(default_factory=list)
    length: int = 0
    cut: bool = False

    def add(self, line: Line, text: str) -> None:
        """Append a line, as far as there is room."""
        room = MAX_TEXT - self.length
        self.cut = self.cut or line.cut or len(text) > room
        if room > 0:
            self.lines.append(text[:room])
        self.length += len(text) + 1


@dataclass(slots=True)
class _Log:
    """One file, as it is read."""

    name: str
    day: date
    zone: ZoneInfo
    now: datetime | None = None
    """The last time that was named."""
    begun: dict[str, int] = field(default_factory=dict)

    def records(self, lines: Iterable[Line]) -> Iterator[Record]:
        """Yield its sessions and messages."""
        said = _Said(self._session(""), "user", None, 1, named=False)
        session: ImportedSession | None = None
        for line in lines:
            following = self._following(line, said)
            if following is None:
                said.add(line, line.text)
                continue
            if finished := self._finished(said):
                yield from finished if said.session is session else (said.session, *finished)
                session = said.session
            said = following
        if finished := self._finished(said):
            yield from finished if said.session is session else (said.session, *finished)

    def _following(self, line: Line, before: _Said) -> _Said | None:
        """The message that the line begins; None if it goes on with the one before."""
        heading = _HEADING.match(line.text)
        if heading and (timed := _TIMED.match(heading[1])):
            self._move(timed.groups()[:3])
            return self._note(self._session(f"{self.now:%H:%M}"), line, timed[4])
        if spoken := _BOLD.match(line.text) or _PLAIN.match(line.text):
            return self._spoken(before.session, line, spoken)
        return self._note(before.session, line, heading[1]) if heading and not before.named else None

    def _session(self, titled: str) -> ImportedSession:
        self.begun[titled] = self.begun.get(titled, 0) + 1
        noon = datetime.combine(self.day, time(12), self.zone)
        return ImportedSession(f"{self.day} {titled} {self.begun[titled]}", self.now or noon, self.name)

    def _note(self, session: ImportedSession, line: Line, text: str) -> _Said:
        note = _Said(session, "user", self.now, line.number, named=False)
        note.add(line, text)
        return note

    def _spoken(self, session: ImportedSession, line: Line, spoken: re.Match[str]) -> _Said:
        who, *clock, text = spoken.groups()
        if clock[0]:
            self._move(clock)
        role: Literal["user", "assistant"] = "assistant" if who.lower() in _ASSISTANTS else "user"
        said = _Said(session, role, self.now if clock[0] else None, line.number, named=True)
        said.add(line, text)
        return said

    def _move(self, clock: Sequence[str | None]) -> None:
        """Note the time; one much earlier than that before is of the next day."""
        hour, minute, second = (int(each or 0) for each in clock)
        at = datetime.combine(self.day, time(hour, minute, second), self.zone)
        while self.now and at < self.now - timedelta(hours=12):
            at += timedelta(days=1)
        self.now = at

    def _finished(self, said: _Said) -> list[Record]:
        """The message, unless it is empty or the title of the page."""
        text = "\n".join(said.lines).strip()
        if not text or text == str(self.day):
            return []
        place = f"{self.name}:{said.line}"
        message: list[Record] = [ImportedMessage(said.role, text, said.at, place)]
        if said.cut:
            message.append(Damaged(place, f"only its first {MAX_TEXT:,} characters were taken"))
        return message


source = Source(
    "a folder of YYYY-MM-DD.md", lambda path: bool(day_of(path) if path.is_file() else logs_in(path)), _read
)

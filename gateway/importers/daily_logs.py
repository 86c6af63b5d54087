"""Daily logs: files named YYYY-MM-DD.md, with sessions under headings that begin with a time.

    ## 09:15
    **User** 09:15:02: Good morning.
    **Assistant** 09:15:04: Good morning!

Text without a speaker is a note; a file without times is one session with a note under each heading.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from gateway.domain.memory.imports import MAX_TEXT, Damaged, ImportedMessage, ImportedSession, Record, Role
from gateway.domain.principals import Label
from gateway.importers import Source
from gateway.importers.records.files import Line, Reader
from gateway.importers.records.texts import CutLines, day_of

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
            yield Damaged(file.name, "its name is not a date; rename it, such as 2026-03-01.md")


def logs_in(folder: Path) -> list[Path]:
    """The daily logs of a folder, the oldest first."""
    return sorted(each for each in folder.iterdir() if each.is_file() and day_of(each))


@dataclass(slots=True)
class _LoggedMessage(CutLines):
    """A message while its lines are read; `named` if the log names its speaker."""

    MAX_CHARS = MAX_TEXT

    session: ImportedSession
    role: Role
    at: datetime | None
    line: int
    named: bool


@dataclass(slots=True)
class _Log:
    """A daily log while it is read."""

    name: str
    day: date
    zone: ZoneInfo
    now: datetime | None = None
    """The last time in the log so far."""
    sessions: dict[str, int] = field(default_factory=dict)
    """The number of sessions by title."""

    def records(self, lines: Iterable[Line]) -> Iterator[Record]:
        """Yield its sessions and messages."""
        session: ImportedSession | None = None
        for message in self._messages(lines):
            if records := self._records_of(message):
                yield from records if message.session is session else (message.session, *records)
                session = message.session

    def _messages(self, lines: Iterable[Line]) -> Iterator[_LoggedMessage]:
        message = _LoggedMessage(self._session(""), "user", None, 1, named=False)
        for line in lines:
            following = self._message_begun_by(line, message)
            if following is None:
                message.add(line, line.text)
            else:
                yield message
                message = following
        yield message

    def _message_begun_by(self, line: Line, before: _LoggedMessage) -> _LoggedMessage | None:
        """The message that the line begins; None if it continues the previous one."""
        heading = _HEADING.match(line.text)
        if heading and (timed := _TIMED.match(heading[1])):
            self._set_time(timed.groups()[:3])
            return self._begun(self._session(f"{self.now:%H:%M}"), line, timed[4], self.now)
        if spoken := _BOLD.match(line.text) or _PLAIN.match(line.text):
            who, *clock, text = spoken.groups()
            if clock[0]:
                self._set_time(clock)
            return self._begun(before.session, line, text, self.now if clock[0] else None, who)
        return self._begun(before.session, line, heading[1], self.now) if heading and not before.named else None

    def _session(self, titled: str) -> ImportedSession:
        self.sessions[titled] = self.sessions.get(titled, 0) + 1
        noon = datetime.combine(self.day, time(12), self.zone)
        return ImportedSession(f"{self.day} {titled} {self.sessions[titled]}", self.now or noon, self.name)

    def _begun(
        self, session: ImportedSession, line: Line, text: str, at: datetime | None, speaker: str = ""
    ) -> _LoggedMessage:
        role: Role = "assistant" if speaker.lower() in _ASSISTANTS else "user"
        message = _LoggedMessage(session, role, at, line.number, named=bool(speaker))
        message.add(line, text)
        return message

    def _set_time(self, clock: Sequence[str | None]) -> None:
        """Advance to a time, which is on the next day if it is more than 12 hours before the last one."""
        hour, minute, second = (int(each or 0) for each in clock)
        at = datetime.combine(self.day, time(hour, minute, second), self.zone)
        while self.now and at < self.now - timedelta(hours=12):
            at += timedelta(days=1)
        self.now = at

    def _records_of(self, message: _LoggedMessage) -> list[Record]:
        """The records of a message; none if it is empty or the title of the page.

        Any line that it quotes may look like one of its person's, so none is more than known.
        """
        if message.text in {"", str(self.day)}:
            return []
        place = f"{self.name}:{message.line}"
        return [ImportedMessage(message.role, message.text, message.at, place, Label.KNOWN), *message.damage(place)]


SOURCES = {
    "daily-logs": Source(
        "a folder of YYYY-MM-DD.md", lambda path: bool(day_of(path) if path.is_file() else logs_in(path)), _read
    )
}

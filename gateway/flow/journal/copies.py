"""Copies: journal files that follow their rows. A wrong file is written again from the rows; the files that were right
at the last check are remembered across starts."""

import asyncio
import json
import re
import time
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import structlog

from gateway.domain.conversation.inbound import Arrival
from gateway.domain.ids import EntryId, JournalId
from gateway.flow.journal.places import Places
from gateway.logs.errors import logged
from gateway.store.transcript import journals
from gateway.store.transcript.journals import CopyMark, JournalLine, JournalRow, ListedJournal
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.journal import files
from gateway.workspace.journal.entries import Content, JournalEntry
from gateway.workspace.journal.files import (
    INDEX,
    SECOND,
    IndexLine,
    Place,
    Version,
    began,
    filed_path,
    render_index,
    render_line,
    run_path,
    stays,
)

_SHOWN = {
    "assistant": "SupaClaw",
    "tool_intent": "Tool call: {}",
    "tool_result": "Tool result: {}",
    "summary": "Summary",
    "notice": "Gateway",
}


def transcribe(lines: Sequence[JournalLine]) -> list[JournalEntry]:
    """The rows as entries, in the same order."""
    return [
        JournalEntry(line.entry_id, line.kind, line.at, _author(line), _shown_text(line), files=line.files)
        for line in lines
    ]


def _author(line: JournalLine) -> str:
    return _SHOWN.get(line.kind, "{}").format(line.who or "User")


def _shown_text(line: JournalLine) -> str:
    if line.kind not in ("tool_intent", "tool_result"):
        return line.text
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", line.text)), default=0))
    left_out = line.length - len(line.text)
    remark = f"\n\n[… {left_out:,} more characters; the database has the whole]" if left_out > 0 else ""
    return f"{fence}json\n{line.text}\n{fence}{remark}"


_NEVER = 2**63

log = structlog.get_logger(__name__)


class VerifiedFiles:
    """The files that were right at the last check, saved in one file; if that is damaged, all are checked again."""

    def __init__(self, file: Path) -> None:
        self._file = Place(file.parent, file.name)
        self._right: dict[str, Version] = {}
        self._saved = b""
        self.rows = CopyMark()
        """The newest rows that all right files have."""
        self.at = _NEVER
        """Time of the last complete check, in nanoseconds."""

    def load(self, newest: CopyMark) -> None:
        """Load the file of the previous process, unless its database had more rows than this one; blocks."""
        self.rows, self._right = newest, {}
        with suppress(OSError):
            digest, _, known = (files.read(self._file)[0] or b"").partition(b"\n")
            if digest != _digest(known):
                return
            message, arrival, at, right = json.loads(known)
            if message <= newest.message and arrival <= newest.arrival:
                self.rows, self.at = CopyMark(message, arrival), at
                self._right = {path: tuple(version) for path, version in right.items()}

    def move(self, rows: CopyMark) -> None:
        """Record that every file is right up to these rows."""
        self.rows, self.at = rows, time.time_ns()

    def state(self) -> bytes:
        """The bytes that `save` writes."""
        known = json.dumps([self.rows.message, self.rows.arrival, self.at, self._right]).encode()
        return _digest(known) + b"\n" + known

    def save(self, state: bytes) -> None:
        """Save the state if it changed; blocks."""
        with logged(log, "journal.not_marked", OSError):
            if state != self._saved:
                files.replace(self._file, state)
                self._saved = state

    def unknown(self, there: Iterable[tuple[Place, Version]]) -> list[tuple[Place, Version]]:
        """The files that were wrong at the last check, or changed since."""
        before, self._right = self._right, {}
        unknown: list[tuple[Place, Version]] = []
        for place, version in there:
            if before.get(_full_path(place)) == version:
                self._right[_full_path(place)] = version
            else:
                unknown.append((place, version))
        return unknown

    def learn(self, place: Place, version: Version | None) -> None:
        """Record that this version is right and has no arrival that the database lacks; None: unknown."""
        if version is None:
            self._right.pop(_full_path(place), None)
        else:
            self._right[_full_path(place)] = version


def _full_path(place: Place) -> str:
    return f"{place.root}/{place.path}"


def _digest(known: bytes) -> bytes:
    return blake2b(known, digest_size=16).hexdigest().encode()


MAX_FILES_REMEMBERED = 512


@dataclass(slots=True)
class _File:
    """The state of a right file: how far it is copied, and the arrivals in it that have no row yet."""

    mark: CopyMark = field(default_factory=CopyMark)
    ahead: set[EntryId] = field(default_factory=set)
    version: Version | None = None
    """The version after our last write; None once somebody else wrote into it."""

    @property
    def right(self) -> Version | None:
        """The version, if the database has everything in it."""
        return None if self.ahead else self.version

    def written(self, versions: tuple[Version, Version]) -> None:
        """Record a write."""
        before, after = versions
        self.version = after if self.version == before else None

    def brought(self, lines: Sequence[JournalLine]) -> None:
        """Record that these rows are in the file."""
        said, arrived = ([line.id for line in lines if line.arrived is arrived] for arrived in (False, True))
        self.mark = CopyMark(max(said, default=self.mark.message), max(arrived, default=self.mark.arrival))
        self.ahead -= {line.entry_id for line in lines}


class Copies:
    """Writes journal files. Its methods raise `OSError` and `WorkspaceError`."""

    def __init__(self, places: Places, checked: VerifiedFiles) -> None:
        self.places = places
        self.checked = checked
        self._files: dict[Place, _File] = {}
        self._indexes: dict[Path, Version | None] = {}
        """Version of each index after the last filing, by root; missing after an interrupted one."""

    def written(self, place: Place, entry: EntryId, versions: tuple[Version, Version]) -> None:
        """Record an arrival in the file that may become a row now."""
        if place in self._files:
            self._files[place].ahead.add(entry)
            self._files[place].written(versions)

    def learn(self) -> None:
        """Record for the next start which files are right."""
        for place, file in self._files.items():
            self.checked.learn(place, file.right)

    def release(self, place: Place) -> None:
        """Forget a file after its check."""
        if (file := self._files.pop(place, None)) is not None:
            self.checked.learn(place, file.right)

    async def unstored(self, places: Iterable[Place]) -> list[tuple[Arrival, Place]]:
        """The arrivals in these files that the database lacks; unreadable files are skipped."""
        found: list[tuple[Arrival, Place]] = []
        for place in places:
            with logged(log, "journal.unreadable", OSError, WorkspaceError, path=str(place.root / place.path)):
                found += [(arrival, place) for arrival in (await self.places.writer.read(place)).arrivals]
        async with self.places.database.connection() as conn:
            stored = await journals.known_arrivals(conn, [arrival for arrival, _ in found])
        return [each for each in found if each[0].id not in stored]

    async def held(self, place: Place) -> tuple[Content, set[EntryId]]:
        """The content of the file, and its arrivals that are in the database, by id or by key."""
        held = await self.places.writer.read(place)
        return held, await self.places.database.read(lambda conn: journals.known_arrivals(conn, held.arrivals))

    async def bring(self, journal: JournalRow, stored: Iterable[EntryId]) -> None:
        """Write every row of the journal into its file, among them those `stored`."""
        place = self.places.place_of(journal)
        file = self._files.get(place)
        # A stored arrival without a row here is a duplicate of an earlier one.
        if file is None or not await self._appended(journal, place, file) or not file.ahead.isdisjoint(stored):
            await self.put_right(journal)

    async def put_right(self, journal: JournalRow, done_with: Set[EntryId] = frozenset()) -> None:
        """Write the file again: its rows, and the arrivals that have no row yet."""
        place = self.places.place_of(journal)
        self._files.pop(place, None)
        file = self._files[place] = _File()  # from here on `written` records arrivals in it
        try:
            # Arrivals that were stored before the rows are read, but are not among them, belong to another journal.
            _, stored = await self.held(place)
            lines = await self._lines(journal.id)
            left, file.version = await self.places.writer.put_right(place, transcribe(lines), stored | done_with)
            file.ahead |= left
        except BaseException:
            self._files.pop(place, None)
            raise
        file.brought(lines)
        if len(self._files) > MAX_FILES_REMEMBERED:
            self.release(next(iter(self._files)))

    async def clear(self, place: Place, done_with: Set[EntryId]) -> None:
        """Delete a file without a session, unless it has something that exists only there."""
        self.places.forget(place)
        version = await asyncio.to_thread(files.version, place)
        held, stored = await self.held(place)
        if held.intact:
            await self.places.writer.remove(place, stored | done_with)
        else:
            log.warning("journal.left_over", path=str(place.root / place.path))
            self.checked.learn(place, None if len(stored | done_with) < len(held.arrivals) else version)

    async def file(self, journal: JournalRow) -> None:
        """Move a closed journal to its final path, unless an arrival in it is not stored yet.

        Each step can be repeated, and the database is updated last, so that a crash only repeats the work.
        """
        place = self.places.place_of(journal)
        self.places.forget(place)
        self._files.pop(place, None)
        held, stored = await self.held(place)
        if len(stored) < len(held.arrivals):
            return
        target = await self._target(journal, place)
        index = await self._listed(journal, target)
        await self.places.writer.put_right(target, transcribe(await self._lines(journal.id)), set())
        if target == place or await self.places.writer.remove(place, stored):
            await self.places.database.run_alone(lambda conn: journals.file_away(conn, journal.id, target.path))
            self._indexes[place.root] = index
            log.info("journal.filed", session_id=str(journal.session_id), path=target.path)

    async def _target(self, journal: JournalRow, place: Place) -> Place:
        """The path in `memory/`: by the second of a conversation, the next free one if it is taken; runs lie deeper."""
        if stays(journal.path):
            return place
        async with self.places.database.connection() as conn:
            if await journals.unattended(conn, journal.session_id):
                return Place(place.root, run_path(journal.opened_at, journal.id))
            second = began(journal.path)
            while await journals.at_path(conn, journal.principal_id, filed_path(second)) is not None:
                second += SECOND
        return Place(place.root, filed_path(second))

    async def _listed(self, journal: JournalRow, target: Place) -> Version | None:
        """Add its line to the index, if it gets one; write the whole index if it changed since the last filing."""
        index, left = Place(target.root, INDEX), self._indexes.pop(target.root, None)

        def line(row: ListedJournal) -> IndexLine:
            path = target.path if row.path == journal.path else row.path
            return IndexLine(began(path), row.channel, row.summary)

        own = await self.places.database.read(lambda conn: journals.listed(conn, journal, others=False))
        if not own or (left := await self.places.writer.extend(index, render_line(line(own[0])), left)):
            return left
        listed = await self.places.database.read(lambda conn: journals.listed(conn, journal))
        return await self.places.writer.write(index, render_index([line(row) for row in listed]))

    async def _appended(self, journal: JournalRow, place: Place, file: _File) -> bool:
        """Append the missing rows; False if the file is gone."""
        lines = await self._lines(journal.id, file.mark)
        try:
            if missing := [line for line in lines if line.entry_id not in file.ahead]:
                file.written(await self.places.writer.append(place, transcribe(missing)))
        except FileNotFoundError:
            return False
        file.brought(lines)
        return True

    async def _lines(self, journal: JournalId, after: CopyMark | None = None) -> list[JournalLine]:
        return await self.places.database.read(lambda conn: journals.lines(conn, journal, after or CopyMark()))

"""Copies: journal files kept up with their rows. A wrong file is written anew from the rows; which files were right at
the last look is kept across starts."""

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
from gateway.store.connection.pool import Database
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
from gateway.workspace.journal.writer import JournalWriter

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
    """Kept in one file across starts; whatever is wrong with that, nothing is known, and all is checked anew."""

    def __init__(self, file: Path) -> None:
        self._file = Place(file.parent, file.name)
        self._right: dict[str, Version] = {}
        self._saved = b""
        self.rows = CopyMark()
        """Up to these, each file that is right has all its rows."""
        self.at = _NEVER
        """When that was found, in nanoseconds: what was written since belongs to whoever waits for an answer."""

    def load(self, newest: CopyMark) -> None:
        """What the process before has left, unless that was of a database with more rows than these; blocks."""
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
        """Every file is right up to these rows."""
        self.rows, self.at = rows, time.time_ns()

    def state(self) -> bytes:
        """What `save` writes."""
        known = json.dumps([self.rows.message, self.rows.arrival, self.at, self._right]).encode()
        return _digest(known) + b"\n" + known

    def save(self, state: bytes) -> None:
        """Keep it, if it is not what was kept last; blocks."""
        try:
            if state != self._saved:
                files.replace(self._file, state)
                self._saved = state
        except OSError as exc:
            log.warning("journal.not_marked", error=str(exc))

    def unknown(self, there: Iterable[tuple[Place, Version]]) -> list[tuple[Place, Version]]:
        """Those of all the files there are that were not right when last looked at, or have changed since."""
        before, self._right = self._right, {}
        unknown: list[tuple[Place, Version]] = []
        for place, version in there:
            if before.get(_full_path(place)) == version:
                self._right[_full_path(place)] = version
            else:
                unknown.append((place, version))
        return unknown

    def learn(self, place: Place, version: Version | None) -> None:
        """This version of the file is right, and holds nothing that the database lacks; None: nobody can say so."""
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
    """What is known of a file that is right: how far it is copied, and what is in it before its row was."""

    mark: CopyMark = field(default_factory=CopyMark)
    ahead: set[EntryId] = field(default_factory=set)
    version: Version | None = None
    """As it was left; None once somebody else wrote into it."""

    @property
    def right(self) -> Version | None:
        """The version, if there is nothing in it that the database lacks."""
        return None if self.ahead else self.version

    def written(self, versions: tuple[Version, Version]) -> None:
        """Something was added to it."""
        before, after = versions
        self.version = after if self.version == before else None

    def brought(self, lines: Sequence[JournalLine]) -> None:
        """These rows are in the file."""
        said, arrived = ([line.id for line in lines if line.arrived is arrived] for arrived in (False, True))
        self.mark = CopyMark(max(said, default=self.mark.message), max(arrived, default=self.mark.arrival))
        self.ahead -= {line.entry_id for line in lines}


class Copies:
    """Raises `OSError` and `WorkspaceError`."""

    def __init__(self, database: Database, places: Places, writer: JournalWriter, checked: VerifiedFiles) -> None:
        self._database = database
        self._places = places
        self._writer = writer
        self._checked = checked
        self._files: dict[Place, _File] = {}
        self._indexes: dict[Path, Version | None] = {}
        """Each index as the last filing left it, by its root; one that was interrupted leaves nothing to rely on."""

    def written(self, place: Place, entry: EntryId, versions: tuple[Version, Version]) -> None:
        """An arrival is in the file and may become a row from now on."""
        if place in self._files:
            self._files[place].ahead.add(entry)
            self._files[place].written(versions)

    def learn(self) -> None:
        """Let the next start know which files are right."""
        for place, file in self._files.items():
            self._checked.learn(place, file.right)

    def release(self, place: Place) -> None:
        """The file has been looked at, and need not be remembered."""
        if (file := self._files.pop(place, None)) is not None:
            self._checked.learn(place, file.right)

    async def unstored(self, places: Iterable[Place]) -> list[tuple[Arrival, Place]]:
        """What arrived in these files and is not in the database; what cannot be read is left aside."""
        found: list[tuple[Arrival, Place]] = []
        for place in places:
            try:
                found += [(arrival, place) for arrival in (await self._writer.read(place)).arrivals]
            except (OSError, WorkspaceError) as exc:
                log.warning("journal.unreadable", path=str(place.root / place.path), error=str(exc))
        async with self._database.connection() as conn:
            stored = await journals.known_arrivals(conn, [arrival for arrival, _ in found])
        return [each for each in found if each[0].id not in stored]

    async def held(self, place: Place) -> tuple[Content, set[EntryId]]:
        """What the file holds, and what of it arrived and is in the database, under its own id or under its key."""
        held = await self._writer.read(place)
        async with self._database.connection() as conn:
            return held, await journals.known_arrivals(conn, held.arrivals)

    async def bring(self, journal: JournalRow, stored: Iterable[EntryId]) -> None:
        """Every row of the journal is in its file after this, and so are those `stored` if they are its rows."""
        place = self._places.place_of(journal)
        file = self._files.get(place)
        # What is stored and was none of the rows had arrived before, under another id.
        if file is None or not await self._appended(journal, place, file) or not file.ahead.isdisjoint(stored):
            await self.put_right(journal)

    async def put_right(self, journal: JournalRow, done_with: Set[EntryId] = frozenset()) -> None:
        """Make the file what it should be: the rows, and what arrived that still has to become one."""
        place = self._places.place_of(journal)
        self._files.pop(place, None)
        file = self._files[place] = _File()  # from here on it hears what is written
        try:
            # What the database had before the rows were read, and not as rows of this journal, is elsewhere.
            _, stored = await self.held(place)
            lines = await self._lines(journal.id)
            left, file.version = await self._writer.put_right(place, transcribe(lines), stored | done_with)
            file.ahead |= left
        except BaseException:
            self._files.pop(place, None)
            raise
        file.brought(lines)
        if len(self._files) > MAX_FILES_REMEMBERED:
            self.release(next(iter(self._files)))

    async def clear(self, place: Place, done_with: Set[EntryId]) -> None:
        """Delete a file that no session has, unless something is only there."""
        self._places.forget(place)
        version = await asyncio.to_thread(files.version, place)
        held, stored = await self.held(place)
        if held.intact:
            await self._writer.remove(place, stored | done_with)
        else:
            log.warning("journal.left_over", path=str(place.root / place.path))
            self._checked.learn(place, None if len(stored | done_with) < len(held.arrivals) else version)

    async def file(self, journal: JournalRow) -> None:
        """Move a closed journal to where it stays, unless something in it still waits to be stored.

        Each step can be done again, and the database is told last: what a crash interrupts is done anew.
        """
        place = self._places.place_of(journal)
        self._places.forget(place)
        self._files.pop(place, None)
        held, stored = await self.held(place)
        if len(stored) < len(held.arrivals):
            return
        target = await self._target(journal, place)
        index = await self._listed(journal, target)
        await self._writer.put_right(target, transcribe(await self._lines(journal.id)), set())
        if target == place or await self._writer.remove(place, stored):
            async with self._database.connection() as conn:
                await journals.file_away(conn, journal.id, target.path)
            self._indexes[place.root] = index
            log.info("journal.filed", session_id=str(journal.session_id), path=target.path)

    async def _target(self, journal: JournalRow, place: Place) -> Place:
        """A conversation goes to `memory/` by its second, or the next one if a lost file had that; a run below it."""
        if stays(journal.path):
            return place
        async with self._database.connection() as conn:
            if await journals.unattended(conn, journal.session_id):
                return Place(place.root, run_path(journal.opened_at, journal.id))
            second = began(journal.path)
            while await journals.at_path(conn, journal.principal_id, filed_path(second)) is not None:
                second += SECOND
        return Place(place.root, filed_path(second))

    async def _listed(self, journal: JournalRow, target: Place) -> Version | None:
        """Add its line to the index, if it gets one; write all of that anew unless it is as the last filing left it."""
        index, left = Place(target.root, INDEX), self._indexes.pop(target.root, None)

        def line(row: ListedJournal) -> IndexLine:
            path = target.path if row.path == journal.path else row.path
            return IndexLine(began(path), row.channel, row.summary)

        async with self._database.connection() as conn:
            own = await journals.listed(conn, journal, others=False)
        if not own or (left := await self._writer.extend(index, render_line(line(own[0])), left)):
            return left
        async with self._database.connection() as conn:
            listed = await journals.listed(conn, journal)
        return await self._writer.write(index, render_index([line(row) for row in listed]))

    async def _appended(self, journal: JournalRow, place: Place, file: _File) -> bool:
        """False if the file is gone."""
        lines = await self._lines(journal.id, file.mark)
        try:
            if missing := [line for line in lines if line.entry_id not in file.ahead]:
                file.written(await self._writer.append(place, transcribe(missing)))
        except FileNotFoundError:
            return False
        file.brought(lines)
        return True

    async def _lines(self, journal: JournalId, after: CopyMark | None = None) -> list[JournalLine]:
        async with self._database.connection() as conn:
            return await journals.lines(conn, journal, after or CopyMark())

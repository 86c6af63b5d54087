"""The journal: messages are written to a file before they are stored, and answers are copied there afterwards.

The database is canonical. The files are its copy for people, and its spool while it is unavailable.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import structlog

from gateway.domain.conversation.inbound import Arrival
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import EntryId, SessionId
from gateway.domain.principals import Role
from gateway.domain.time import Clock
from gateway.flow.journal.check import Check
from gateway.flow.journal.copies import Copies, VerifiedFiles
from gateway.flow.journal.copyist import Copyist
from gateway.flow.journal.places import Places
from gateway.flow.people import People
from gateway.logs.errors import logged
from gateway.store.connection.pool import Connection, Database
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript import journals
from gateway.store.transcript.journals import CopyMark
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.journal.entries import entry_of
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter

MARK_EVERY = 600.0
RETRY = 5.0
OPEN = 10_000

_TOO_MANY = EntryId(UUID(int=0))

log = structlog.get_logger(__name__)


class Journal:
    """All journals: the owner's in `workspace`; the members', the key and the mark in `data`."""

    def __init__(self, database: Database, people: People, workspace: Path, data: Path, clock: Clock) -> None:
        self._writer = JournalWriter(data / "keys" / "journal", data / "journal" / "damaged")
        self._places = Places(database, people, self._writer, workspace, data / "principals")
        self._copies = Copies(self._places, VerifiedFiles(data / "journal" / "checked"))
        self._copyist = Copyist(self._copies, clock)
        self.check = Check(self._copies, self._copyist, clock, self._unstored_in)
        self._database = database
        self._clock = clock
        self._open: set[EntryId] = set()
        self._failing = False

    async def write(self, arrival: Arrival, role: Role) -> Place | None:
        """Append an arrival to its conversation's file, without a sync; None if there is none, or it can't be written.

        A full or broken workspace doesn't stop a chat: the database is canonical.
        """
        try:
            place = await self._written(arrival, role)
        except (OSError, WorkspaceError) as exc:
            if not self._failing:
                log.warning("journal.not_written", error=str(exc))
            self._failing = True
            return None
        self._failing = False
        return place

    async def sync(self, place: Place) -> None:
        """Sync the file to disk; raises `TryAgainLater` if that fails."""
        try:
            await self._writer.sync(place)
        except (OSError, WorkspaceError) as exc:
            raise TryAgainLater(f"the journal cannot be brought to disk: {exc}") from exc

    def is_fresh(self, place: Place | None) -> bool:
        """Whether the file may belong to no session yet."""
        return place in self._places.fresh

    async def bind(self, tx: Connection, at: AddressRow, place: Place) -> None:
        """Make a fresh file the session's, if it has none; the caller holds the session."""
        if self.is_fresh(place) and place.root == self._places.root_of(at.principal_id):
            await journals.begin(tx, at.session_id, at.principal_id, place.path)

    def stored(self, arrival: Arrival, place: Place | None, session: SessionId | None) -> None:
        """Record that an arrival was committed, or without a session dropped. Never blocks."""
        self._open.discard(arrival.id)
        if session is not None:
            self._copyist.changed(session, (arrival.id, place))
            if place is not None:
                self._places.fresh.discard(place)
        elif place is not None:
            self._copyist.changed(place, (arrival.id, place))

    def changed(self, session: SessionId) -> None:
        """Queue a session with committed rows; never blocks."""
        self._copyist.changed(session)

    def rewrite(self, session: SessionId) -> None:
        """Queue a session whose copied rows have changed; never blocks."""
        self._copyist.rewrite(session)

    async def run(self) -> None:
        """Copy committed rows, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._copyist.run(), name="journal copyist")
            group.create_task(self._keep_marking(), name="journal mark")
            group.create_task(self.check.run(), name="journal check")

    async def catch_up(self) -> bool:
        """Copy the rows committed by now, once, as at an orderly stop; False if some must be retried."""
        newest = await self._newest()
        done = await self._copyist.catch_up()
        await self._move_mark(newest)
        return done

    async def unstored(self) -> list[tuple[Arrival, Place]]:
        """Arrivals in the files that the database lacks, the oldest first; for a start, before messages are accepted.

        Reads only the newest of the files that changed since the last check; `check` has the others.
        """
        with logged(log, "journal.unreadable", OSError):
            await self._writer.open()
        return sorted(await self.check.begin(), key=lambda each: each[0].at)

    async def _written(self, arrival: Arrival, role: Role) -> Place | None:
        for create in (False, True):
            place = await self._places.of(arrival, role)
            if place is None:
                return None
            self._remember(arrival)
            try:
                await self.check.before_writing(place)
                versions = await self._writer.append(place, [entry_of(arrival)], create=create)
            except FileNotFoundError:  # it was filed or deleted meanwhile
                self._places.forget(place)
                continue
            self._copies.written(place, arrival.id, versions)
            return place
        return None

    def _remember(self, arrival: Arrival) -> None:
        """Remember an arrival that is not in the database yet; beyond `OPEN` of them the mark stays where it is."""
        self._open.add(arrival.id if len(self._open) < OPEN else _TOO_MANY)

    async def _unstored_in(self, places: Sequence[Place]) -> list[tuple[Arrival, Place]]:
        unstored = await self._copies.unstored(places)
        for place in {place for _, place in unstored}:
            if await self._places.journal_at(place) is None:
                self._places.fresh.add(place)
        for arrival, _ in unstored:
            self._remember(arrival)
        return unstored

    async def _newest(self) -> CopyMark | None:
        with suppress(TryAgainLater):
            return await self._database.read(journals.newest)
        return None

    async def _keep_marking(self) -> None:
        while True:
            newest = await self._newest()
            await self._clock.sleep(RETRY)
            if await self._move_mark(newest):
                await self._clock.sleep(MARK_EVERY)

    async def _move_mark(self, newest: CopyMark | None) -> bool:
        """Move the mark if all arrivals are stored and all rows copied."""
        return await self.check.save(None if self._open or self._copyist.behind else newest)

"""The journal: what arrives is in a file before the database has it, and what is said is copied there after.

The database is canonical. The files are its copy for people, and its spool while it is away.
"""

import asyncio
from collections.abc import Sequence
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
    """Everybody's journals: the owner's below `workspace`, the others', the key and the mark below `data`."""

    def __init__(self, database: Database, people: People, workspace: Path, data: Path, clock: Clock) -> None:
        self._writer = JournalWriter(data / "keys" / "journal", data / "journal" / "damaged")
        self._places = Places(database, people, self._writer, workspace, data / "principals")
        checked = VerifiedFiles(data / "journal" / "checked")
        self._copies = Copies(database, self._places, self._writer, checked)
        self._copyist = Copyist(database, self._places, self._writer, self._copies, clock)
        self.check = Check(database, self._places, self._copies, self._copyist, checked, clock, self._unstored_in)
        self._database = database
        self._clock = clock
        self._open: set[EntryId] = set()
        self._failing = False

    async def write(self, arrival: Arrival, role: Role) -> Place | None:
        """Append what arrived to its conversation's file, not yet on disk; None if it has none, or none can be written.

        A workspace that is full or broken does not stop a chat: the database is canonical.
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
        """What was written there is on disk when this returns; raises `TryAgainLater` if it is not."""
        try:
            await self._writer.sync(place)
        except (OSError, WorkspaceError) as exc:
            raise TryAgainLater(f"the journal cannot be brought to disk: {exc}") from exc

    async def bind(self, tx: Connection, at: AddressRow, place: Place) -> None:
        """Make a fresh file the session's, if it has none; the caller holds the session and stores into it next."""
        if place in self._places.fresh and place.root == self._places.root_of(at.principal_id):
            await journals.begin(tx, at.session_id, at.principal_id, place.path)

    def stored(self, arrival: Arrival, place: Place | None, session: SessionId | None) -> None:
        """It was committed; without a session nothing of it was stored, and nothing will be. Never blocks."""
        self._open.discard(arrival.id)
        if session is not None:
            self._copyist.changed(session, (arrival.id, place))
            if place is not None:
                self._places.fresh.discard(place)
        elif place is not None:
            self._copyist.changed(place, (arrival.id, place))

    def changed(self, session: SessionId) -> None:
        """Rows of this session were committed; never blocks."""
        self._copyist.changed(session)

    def rewrite(self, session: SessionId) -> None:
        """Rows of this session are not what they were when they were copied; never blocks."""
        self._copyist.rewrite(session)

    async def run(self) -> None:
        """Copy what is committed, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._copyist.run(), name="journal copyist")
            group.create_task(self._keep_marking(), name="journal mark")
            group.create_task(self.check.run(), name="journal check")

    async def catch_up(self) -> bool:
        """Copy once what is committed by now, as at an orderly stop; False if some of it has to be tried again."""
        newest = await self._newest()
        done = await self._copyist.catch_up()
        await self._move_mark(newest)
        return done

    async def unstored(self) -> list[tuple[Arrival, Place]]:
        """At the start, before anything is taken in: what is in the files and not in the database, the oldest first.

        Only files that changed since they were looked at are read, the newest of them; `check` has the others.
        """
        try:
            await self._writer.open()
        except OSError as exc:
            log.warning("journal.unreadable", error=str(exc))
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
            except FileNotFoundError:  # it was closed and filed meanwhile, or somebody deleted it
                self._places.forget(place)
                continue
            self._copies.written(place, arrival.id, versions)
            return place
        return None

    def _remember(self, arrival: Arrival) -> None:
        """This is in a file and not yet in the database; where that is too much to remember, the mark stays."""
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
        try:
            async with self._database.connection() as conn:
                return await journals.newest(conn)
        except TryAgainLater:
            return None

    async def _keep_marking(self) -> None:
        while True:
            newest = await self._newest()
            await self._clock.sleep(RETRY)
            if await self._move_mark(newest):
                await self._clock.sleep(MARK_EVERY)

    async def _move_mark(self, newest: CopyMark | None) -> bool:
        """The files have all rows up to these if all that was written is stored, and all stored is copied."""
        return await self.check.save(None if self._open or self._copyist.behind else newest)

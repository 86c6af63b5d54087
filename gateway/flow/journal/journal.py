"""The journal: what arrives is in a file before the database has it, and what is said is copied there after.

The database is canonical. The files are its copy for people, and its spool while it is away.
"""

import asyncio
from pathlib import Path

import structlog

from gateway.domain.clock import Clock
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import SessionId
from gateway.domain.inbound import Arrival
from gateway.domain.principals import Role
from gateway.flow.journal.copies import Copies
from gateway.flow.journal.copyist import Copyist
from gateway.flow.journal.filing import Filing
from gateway.flow.journal.places import Places
from gateway.flow.journal.reconcile import Reconcile
from gateway.flow.journal.strays import Strays
from gateway.flow.people import People
from gateway.store import journals
from gateway.store.addresses import AddressRow
from gateway.store.pool import Connection, Database
from gateway.workspace.journal.entry import Entry, entry_of
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter
from gateway.workspace.paths import WorkspaceError

__all__ = ["Journal", "Place"]

log = structlog.get_logger(__name__)


class Journal:
    """Everybody's journals: the owner's below `workspace`, the others', the key and the mark below `data`."""

    def __init__(self, database: Database, people: People, workspace: Path, data: Path, clock: Clock) -> None:
        self._writer = JournalWriter(data / "keys" / "journal", data / "journal" / "damaged")
        self._places = Places(database, people, self._writer, workspace, data / "principals")
        strays = Strays(database, self._places, self._writer)
        filing = Filing(database, self._places, self._writer, strays)
        self._strays = strays
        self._copies = Copies(database, self._places, self._writer, strays)
        self._copyist = Copyist(database, self._places, self._copies, strays, filing, clock)
        mark = data / "journal" / "checked"
        self._reconcile = Reconcile(database, self._places, self._writer, strays, self._copyist, mark, clock)
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
        if place.fresh and place.root == self._places.root_of(at.principal_id):
            await journals.begin(tx, at.session_id, at.principal_id, place.path)

    def stored(self, arrival: Arrival, place: Place | None, session: SessionId | None) -> None:
        """It was committed; without a session nothing of it was stored, and nothing will be. Never blocks."""
        self._reconcile.stored(arrival.id)
        if session is not None:
            self._copyist.stored(session, arrival.id, place)
            if place is not None:
                self._places.bound(arrival.inbound.address, place)
        elif place is not None:
            self._strays.settle(arrival.id)
            self._copyist.suspect(place)

    def changed(self, session: SessionId) -> None:
        """Rows of this session were committed; never blocks."""
        self._copyist.changed(session)

    async def unstored(self) -> list[tuple[Arrival, Place]]:
        """At the start, before anything is taken in: what is in the files and not in the database, the oldest first."""
        return await self._reconcile.unstored()

    async def checked(self) -> None:
        """What `unstored` returned is stored, or never will be."""
        await self._reconcile.checked()

    async def run(self) -> None:
        """Copy what is committed, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._copyist.run(), name="journal copyist")
            group.create_task(self._reconcile.keep_marking(), name="journal mark")

    async def catch_up(self) -> bool:
        """Copy once what is committed by now, as at an orderly stop; False if some of it has to be tried again."""
        return await self._copyist.catch_up()

    async def mark(self) -> bool:
        """Note that the files need not be read again at the next start; False while something in them is not stored."""
        return await self._reconcile.mark()

    async def _written(self, arrival: Arrival, role: Role) -> Place | None:
        entry = entry_of(arrival)
        place = await self._places.of(arrival, role)
        if place is None:
            return None
        try:
            return await self._append(place, entry)
        except FileNotFoundError:  # it was closed and filed meanwhile, or somebody deleted it
            self._places.forget(place)
        again = await self._places.of(arrival, role)
        return None if again is None else await self._append(again, entry, create=True)

    async def _append(self, place: Place, entry: Entry, *, create: bool = False) -> Place:
        self._reconcile.written(entry)
        await self._writer.append(place, [entry], create=create)
        self._copies.written(place, entry.id)
        return place

"""Strays: entries in a file that is not their session's, and files that no session has."""

from collections import OrderedDict
from collections.abc import Sequence

from gateway.domain.ids import EntryId, SessionId
from gateway.domain.inbound import Arrival
from gateway.flow.journal.places import Places
from gateway.store import entries, journals
from gateway.store.pool import Database
from gateway.workspace.journal.entry import Entry
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter

AT_ONCE = 5_000
REMEMBERED = 10_000


class Strays:
    """Tells what the database lacks from what it has elsewhere."""

    def __init__(self, database: Database, places: Places, writer: JournalWriter) -> None:
        self._database = database
        self._places = places
        self._writer = writer
        self._settled: OrderedDict[EntryId, None] = OrderedDict()

    def settle(self, entry: EntryId) -> None:
        """This one will not be stored, and need not be."""
        self._settled[entry] = None
        if len(self._settled) > REMEMBERED:
            self._settled.popitem(last=False)

    async def unknown(self, held: Sequence[Entry]) -> list[Arrival]:
        """What arrived and still has to be stored: the database has it neither under this id nor under its key."""
        arrivals = [a for entry in held if (a := entry.arrival) is not None and a.id not in self._settled]
        known: set[EntryId] = set()
        for start in range(0, len(arrivals), AT_ONCE):
            async with self._database.connection() as conn:
                some = [(arrival.id, arrival.inbound) for arrival in arrivals[start : start + AT_ONCE]]
                known |= await entries.known(conn, some)
        return [arrival for arrival in arrivals if arrival.id not in known]

    async def session_of(self, place: Place) -> SessionId | None:
        """The session whose file this is."""
        async with self._database.connection() as conn:
            found = await journals.registered(conn, self._places.owner_of(place), [place.path])
        return found.get(place.path)

    async def clear(self, place: Place) -> bool:
        """Delete a file that no session has, unless something is only there; whether it is gone."""
        held = await self._writer.read(place)
        if (held.size and not held.content.intact) or await self.unknown(held.content.entries):
            return False
        self._places.forget(place)
        return await self._writer.remove(place, size=held.size)

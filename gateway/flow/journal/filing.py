"""Filing: a closed journal moves from `sessions/` to `memory/`, and the list of them grows by a line.

Each step can be done again, and the database is told last: what a crash interrupts is done anew.
"""

from datetime import datetime, timedelta

import structlog

from gateway.flow.journal.places import Places
from gateway.flow.journal.strays import Strays
from gateway.flow.journal.transcribing import transcribed
from gateway.store import entries, journals
from gateway.store.entries import Mark
from gateway.store.journals import JournalRow
from gateway.store.pool import Connection, Database
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.names import INDEX, began, filed_path
from gateway.workspace.journal.summary import IndexLine, render_index
from gateway.workspace.journal.writer import JournalWriter

log = structlog.get_logger(__name__)


class Filing:
    """Puts closed journals where they stay."""

    def __init__(self, database: Database, places: Places, writer: JournalWriter, strays: Strays) -> None:
        self._database = database
        self._places = places
        self._writer = writer
        self._strays = strays

    async def file(self, journal: JournalRow) -> bool:
        """False while something in it waits to be stored, or is being written."""
        place = Place(self._places.root_of(journal.principal_id), journal.path)
        self._places.forget(place)
        held = await self._writer.read(place)
        if await self._strays.unknown(held.content.entries):
            return False
        async with self._database.connection() as conn:
            target = Place(place.root, await _free(conn, journal))
            lines = await entries.lines(conn, journal.id, Mark())
        await self._writer.copy(place, target, transcribed(lines))
        await self._list(journal, target)
        if not await self._writer.remove(place, size=held.size):
            return False
        async with self._database.connection() as conn:
            await journals.file_away(conn, journal.id, target.path)
        log.info("journal.filed", session_id=str(journal.session_id), path=target.path)
        return True

    async def _list(self, journal: JournalRow, target: Place) -> None:
        async with self._database.connection() as conn:
            filed = await journals.of_principal(conn, journal.principal_id)
            channel = await journals.channel_of(conn, journal.id)
        lines = [IndexLine(row.path, began(row.path), row.channel, row.summary) for row in filed]
        lines.append(IndexLine(target.path, began(target.path), channel, journal.summary))
        lines.sort(key=lambda line: line.at, reverse=True)
        await self._writer.write(Place(target.root, INDEX), render_index(lines))


async def _free(conn: Connection, journal: JournalRow) -> str:
    """The name that goes with the open one; where another journal has it, as after a lost file, the next second."""
    second: datetime = began(journal.path)
    while await journals.taken(conn, journal.principal_id, filed_path(second)):
        second += timedelta(seconds=1)
    return filed_path(second)

"""Copies: the open files, each as far as it is copied; what is not right in one is made right."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import structlog

from gateway.domain.ids import EntryId, SessionId
from gateway.flow.journal.places import Places
from gateway.flow.journal.strays import Strays
from gateway.flow.journal.transcribing import transcribed
from gateway.store import entries, journals, sessions
from gateway.store.entries import Line, Mark
from gateway.store.journals import JournalRow, Unopened
from gateway.store.pool import Connection, Database
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.summary import Outline, summarise
from gateway.workspace.journal.writer import JournalWriter

FILES = 512

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _File:
    """What is known of a file that was looked at: how far it is copied, and what is in it before its row was."""

    mark: Mark = field(default_factory=Mark)
    ahead: set[EntryId] = field(default_factory=set)


class Copies:
    """Opens files for sessions and keeps them up with the rows. Raises `OSError` and `WorkspaceError`."""

    def __init__(self, database: Database, places: Places, writer: JournalWriter, strays: Strays) -> None:
        self._database = database
        self._places = places
        self._writer = writer
        self._strays = strays
        self._files: OrderedDict[Place, _File] = OrderedDict()

    def written(self, place: Place, entry: EntryId) -> None:
        """An arrival is in the file and may become a row from now on."""
        if place in self._files:
            self._files[place].ahead.add(entry)

    def forget(self, place: Place) -> None:
        """Look at the whole file the next time."""
        self._files.pop(place, None)

    def ahead(self, place: Place, written: Iterable[EntryId]) -> bool:
        """Whether any of these is in the file and was none of the rows brought there."""
        file = self._files.get(place)
        return file is not None and not file.ahead.isdisjoint(written)

    async def bring(self, journal: JournalRow, place: Place) -> None:
        """Every row of the journal is in its file after this."""
        if place in self._files:
            await self._append(journal, place)
        else:
            await self._verify(journal, place)

    async def open(self, session: SessionId) -> JournalRow | None:
        """The session's open journal, opened now if it has rows that are in none; None if it has no rows to copy."""
        async with self._database.connection() as conn:
            journal = await journals.open_for(conn, session)
            unopened = None if journal else await journals.unopened_in(conn, session)
        return journal if unopened is None else await self._begin(unopened)

    async def _begin(self, unopened: Unopened) -> JournalRow | None:
        place = await self._writer.create(self._places.root_of(unopened.principal_id), unopened.since)
        journal = await self._database.run(lambda tx: _begin(tx, unopened, place.path))
        if journal is None or journal.path != place.path:
            await self._writer.remove(place, size=0)
        return journal

    async def _append(self, journal: JournalRow, place: Place) -> None:
        file = self._files[place]
        self._files.move_to_end(place)
        async with self._database.connection() as conn:
            lines = await entries.lines(conn, journal.id, file.mark)
        missing = [line for line in lines if line.entry_id not in file.ahead]
        try:
            if missing:
                await self._writer.append(place, transcribed(missing))
        except FileNotFoundError:
            await self._verify(journal, place)
            return
        file.mark = _after(file.mark, lines)
        file.ahead -= {line.entry_id for line in lines}

    async def _verify(self, journal: JournalRow, place: Place) -> None:
        """The first look at a file, or another one: written anew from the rows if it is damaged or lacks older ones."""
        file = self._files[place] = _File()  # from here on it hears what is written
        try:
            await self._make_right(journal, place, file)
        except BaseException:
            self._files.pop(place, None)
            raise
        if len(self._files) > FILES:
            self._files.popitem(last=False)

    async def _make_right(self, journal: JournalRow, place: Place, file: _File) -> None:
        content = (await self._writer.read(place)).content
        waiting = {arrival.id for arrival in await self._strays.unknown(content.entries)}
        async with self._database.connection() as conn:
            lines = await entries.lines(conn, journal.id, Mark())
        rows, held = {line.entry_id for line in lines}, {entry.id for entry in content.entries}
        # What the database had before the rows were read, and not as rows of this journal, is elsewhere.
        strays = held - rows - waiting
        missing = [line for line in lines if line.entry_id not in held | file.ahead]
        wrong = not content.intact or content.repeated or strays
        if wrong or missing != lines[len(lines) - len(missing) :]:
            log.info("journal.rewritten", session_id=str(journal.session_id), path=place.path, intact=content.intact)
            await self._writer.rewrite(place, transcribed(lines), strays)
        elif missing:
            await self._writer.append(place, transcribed(missing))
        file.mark = _after(file.mark, lines)
        file.ahead = (file.ahead | waiting) - rows


async def _begin(tx: Connection, unopened: Unopened, path: str) -> JournalRow | None:
    """The session's open journal; one that was made after the session ended is closed at once, and None."""
    await sessions.lock(tx, unopened.session_id)
    journal = await journals.begin(tx, unopened.session_id, unopened.principal_id, path)
    if journal is None:
        return await journals.open_for(tx, unopened.session_id)
    if not unopened.ended:
        return journal
    said = await journals.outline(tx, unopened.session_id)
    await journals.close(tx, unopened.session_id, summarise(Outline(said.asked, said.answered, said.messages)))
    return None


def _after(mark: Mark, lines: Sequence[Line]) -> Mark:
    return Mark(
        max((line.id for line in lines if not line.arrived), default=mark.message),
        max((line.id for line in lines if line.arrived), default=mark.arrival),
    )

"""Reconciling at the start: what the journal has and the database has not, because a crash came in between."""

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import structlog

from gateway.domain.clock import Clock
from gateway.domain.ids import EntryId
from gateway.domain.inbound import Arrival, Inbound
from gateway.flow.journal.copyist import Copyist
from gateway.flow.journal.places import Places
from gateway.flow.journal.strays import Strays
from gateway.store import entries, journals
from gateway.store.pool import Database
from gateway.workspace.journal import files
from gateway.workspace.journal.entry import Entry
from gateway.workspace.journal.files import Place
from gateway.workspace.journal.writer import JournalWriter
from gateway.workspace.paths import WorkspaceError

SLACK = timedelta(minutes=10)
"""Files that were written so long before the mark are looked at all the same: a clock may have been corrected."""

MARK_EVERY = 600.0
OPEN = 10_000

log = structlog.get_logger(__name__)


class Reconcile:
    """Keeps a mark: everything written before it is in the database. Only files changed since then are read."""

    def __init__(
        self,
        database: Database,
        places: Places,
        writer: JournalWriter,
        strays: Strays,
        copyist: Copyist,
        mark: Path,
        clock: Clock,
    ) -> None:
        self._database = database
        self._places = places
        self._writer = writer
        self._strays = strays
        self._copyist = copyist
        self._mark = mark
        self._clock = clock
        self._began: datetime | None = None
        self._found: list[Place] = []
        self._left: list[Arrival] = []
        self._complete = False
        self._open: dict[EntryId, Inbound] = {}

    async def unstored(self) -> list[tuple[Arrival, Place]]:
        """What to store before anything else is taken in, the oldest first; raises `OwnerMustAct` for a bad key."""
        try:
            await self._writer.open()
        except OSError as exc:
            log.warning("journal.unreadable", error=str(exc))
        self._began = self._clock.now()
        self._found = await asyncio.to_thread(self._changed)
        missing = [each for place in self._found for each in await self._missing(place)]
        missing.sort(key=lambda each: each[0].at)
        self._left = [arrival for arrival, _ in missing]
        return missing

    async def checked(self) -> None:
        """What `unstored` returned has been dealt with: the mark moves on, and the files are put right."""
        for arrival in self._left:
            if arrival.inbound.edits is not None:  # an edit of something unknown is never stored
                self._strays.settle(arrival.id)
        for place in self._found:
            await self._put_right(place)
        await self._miss()
        if self._began is not None:
            await asyncio.to_thread(self._move_mark, self._began)
        self._found, self._left, self._complete = [], [], True

    def written(self, entry: Entry) -> None:
        """This is in a file and not yet in the database; where that is too much to remember, the mark stays."""
        if len(self._open) >= OPEN:
            self._complete = False
        elif entry.inbound is not None:
            self._open[entry.id] = entry.inbound

    def stored(self, entry: EntryId) -> None:
        """This is in the database."""
        self._open.pop(entry, None)

    async def keep_marking(self) -> None:
        """Until cancelled: move the mark on whenever nothing is open, so that the next start has little to read."""
        while True:
            await self._clock.sleep(MARK_EVERY)
            await self.mark()

    async def mark(self) -> bool:
        """Move the mark to now, if everything that was written is stored."""
        now = self._clock.now()
        await self._forget_stored()
        if self._open or not self._complete:
            return False
        try:
            await asyncio.to_thread(self._move_mark, now)
        except OSError as exc:
            log.warning("journal.not_marked", error=str(exc))
            return False
        return True

    async def _forget_stored(self) -> None:
        """A message whose storing failed came again, under another id; it is known by the platform's."""
        if self._open:
            async with self._database.connection() as conn:
                for entry in await entries.known(conn, list(self._open.items())):
                    self._open.pop(entry, None)

    async def _missing(self, place: Place) -> list[tuple[Arrival, Place]]:
        try:
            held = await self._writer.read(place)
        except (OSError, WorkspaceError) as exc:
            log.warning("journal.unreadable", path=str(place.root / place.path), error=str(exc))
            return []
        arrivals = await self._strays.unknown(held.content.entries)
        fresh = bool(arrivals) and await self._strays.session_of(place) is None
        return [(arrival, replace(place, fresh=fresh)) for arrival in arrivals]

    async def _put_right(self, place: Place) -> None:
        try:
            session = await self._strays.session_of(place)
            if session is not None:
                self._copyist.changed(session)
            elif not await self._strays.clear(place):
                log.warning("journal.left_over", path=str(place.root / place.path))
        except (OSError, WorkspaceError) as exc:
            log.warning("journal.unreadable", path=str(place.root / place.path), error=str(exc))

    async def _miss(self) -> None:
        """Files that are gone are made again."""
        async with self._database.connection() as conn:
            expected = await journals.all_open(conn)
        present = set(await asyncio.to_thread(self._written_since, 0.0))
        for journal in expected:
            if Place(self._places.root_of(journal.principal_id), journal.path) not in present:
                self._copyist.changed(journal.session_id)

    def _changed(self) -> list[Place]:
        return self._written_since(self._since())

    def _written_since(self, since: float) -> list[Place]:
        return [place for root in self._places.roots() for place in _sessions(root, since)]

    def _since(self) -> float:
        """From when on files are read; all of them without a mark, or when it lies ahead of the clock."""
        with suppress(OSError, ValueError):
            mark = datetime.fromisoformat(self._mark.read_text(encoding="ascii").strip())
            if mark <= self._clock.now():
                return (mark - SLACK).timestamp()
        return 0.0

    def _move_mark(self, to: datetime) -> None:
        self._mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = self._mark.with_name(f".{self._mark.name}")
        beside.write_text(f"{to.isoformat()}\n", encoding="ascii")
        os.replace(beside, self._mark)


def _sessions(root: Path, since: float) -> Iterable[Place]:
    try:
        return list(files.sessions(root, since))
    except OSError as exc:
        log.warning("journal.unreadable", path=str(root), error=str(exc))
        return []

"""The copyist: goes after sessions whose rows changed, files that look wrong, and journals that were closed."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from gateway.domain.clock import Clock
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import EntryId, SessionId
from gateway.flow.journal.copies import Copies
from gateway.flow.journal.filing import Filing
from gateway.flow.journal.places import Places
from gateway.flow.journal.strays import Strays
from gateway.flow.wakeup import Wakeup
from gateway.store import entries, journals
from gateway.store.journals import JournalRow
from gateway.store.pool import Database
from gateway.workspace.journal.files import Place
from gateway.workspace.paths import WorkspaceError

AT_ONCE = 100
GATHER = 0.25
RETRY = 5.0
IDLE = 30.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Stored:
    """Something that was stored, and where it had been written."""

    entry: EntryId
    place: Place | None


class Copyist:
    """Works through sessions that changed, one at a time; what fails is tried again."""

    def __init__(
        self,
        database: Database,
        places: Places,
        copies: Copies,
        strays: Strays,
        filing: Filing,
        clock: Clock,
    ) -> None:
        self._database = database
        self._places = places
        self._copies = copies
        self._strays = strays
        self._filing = filing
        self._clock = clock
        self._changed: dict[SessionId, list[_Stored]] = {}
        self._suspects: set[Place] = set()
        self._troubled: set[object] = set()
        self._wakeup = Wakeup()
        self._one_round = asyncio.Lock()

    def changed(self, session: SessionId) -> None:
        """Rows of this session were committed; never blocks."""
        self._changed.setdefault(session, [])
        self._wakeup.set()

    def stored(self, session: SessionId, entry: EntryId, place: Place | None) -> None:
        """This arrival was committed after it had been written there; never blocks."""
        self._changed.setdefault(session, []).append(_Stored(entry, place))
        self._wakeup.set()

    def suspect(self, place: Place) -> None:
        """Something is in this file that does not belong there."""
        self._suspects.add(place)
        self._wakeup.set()

    async def run(self) -> None:
        """Until cancelled; looks by itself every 30 s, for what another process or a crash left."""
        while True:
            self._wakeup.clear()
            done = await self.catch_up()
            await (self._wakeup.wait(IDLE) if done else self._clock.sleep(RETRY))
            await self._clock.sleep(GATHER)

    async def catch_up(self) -> bool:
        """Do once what there is to do; False if some of it has to be done again."""
        async with self._one_round:
            try:
                return await self._round()
            except TryAgainLater as exc:
                log.info("journal.waits", error=str(exc))
                return False

    async def _round(self) -> bool:
        async with self._database.connection() as conn:
            unopened = await journals.unopened(conn, AT_ONCE)
        for left in unopened:
            self._changed.setdefault(left.session_id, [])
        done = len(unopened) < AT_ONCE
        for session in list(self._changed):
            done = await self._copied(session) and done
        for place in list(self._suspects):
            done = await self._looked_at(place) and done
        async with self._database.connection() as conn:
            unfiled = await journals.unfiled(conn, AT_ONCE)
        for journal in unfiled:
            done = await self._filed(journal) and done
        return done and len(unfiled) < AT_ONCE

    async def _copied(self, session: SessionId) -> bool:
        stored = self._changed.pop(session)
        try:
            await self._copy(session, stored)
        except (OSError, WorkspaceError) as exc:
            self._put_back(session, stored)
            return self._trouble(session, exc)
        except TryAgainLater:
            self._put_back(session, stored)
            raise
        self._troubled.discard(session)
        return True

    async def _looked_at(self, place: Place) -> bool:
        try:
            session = await self._strays.session_of(place)
            if session is None:
                await self._strays.clear(place)
        except (OSError, WorkspaceError) as exc:
            return self._trouble(place.path, exc)
        self._suspects.discard(place)
        self._troubled.discard(place.path)
        if session is None:
            return True
        self._copies.forget(place)
        self._changed.setdefault(session, [])
        return False

    async def _filed(self, journal: JournalRow) -> bool:
        """What waits to be stored keeps a journal from being filed; that is no trouble."""
        try:
            await self._filing.file(journal)
        except (OSError, WorkspaceError) as exc:
            return self._trouble(journal.path, exc)
        self._copies.forget(Place(self._places.root_of(journal.principal_id), journal.path))
        self._troubled.discard(journal.path)
        return True

    async def _copy(self, session: SessionId, stored: Sequence[_Stored]) -> None:
        journal = await self._copies.open(session)
        place = Place(self._places.root_of(journal.principal_id), journal.path) if journal else None
        self._suspects |= {each.place for each in stored if each.place is not None and each.place != place}
        if journal is None or place is None:
            return
        if stored:
            async with self._database.connection() as conn:
                await entries.adopt(conn, journal.id, [each.entry for each in stored])
        await self._copies.bring(journal, place)
        # What was stored as no row of this journal had arrived before, under another id.
        if self._copies.ahead(place, [each.entry for each in stored]):
            self._suspects.add(place)

    def _put_back(self, session: SessionId, stored: list[_Stored]) -> None:
        self._changed[session] = [*stored, *self._changed.get(session, [])]

    def _trouble(self, what: object, exc: Exception) -> bool:
        if what not in self._troubled:
            self._troubled.add(what)
            log.warning("journal.not_copied", of=str(what), error=str(exc))
        return False

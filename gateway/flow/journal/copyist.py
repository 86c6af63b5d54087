"""The queue of copies: sessions with changed rows, files that may be wrong, and closed journals."""

import asyncio
from collections.abc import Awaitable, Set
from math import inf
from uuid import UUID

import structlog

from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import EntryId, SessionId
from gateway.domain.time import Clock
from gateway.flow.journal.copies import Copies
from gateway.flow.signals import Wakeup
from gateway.store.connection.pool import Connection
from gateway.store.transcript import journals, sessions
from gateway.store.transcript.journals import JournalRow, UnopenedJournal
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.journal.files import Place, summarise

AT_ONCE = 25
GATHER = 0.25
RETRY = 5.0
IDLE = 30.0

log = structlog.get_logger(__name__)


class Copyist:
    """Copies changed sessions and files, one at a time; failures are retried."""

    def __init__(self, copies: Copies, clock: Clock) -> None:
        self._copies = copies
        self._places = copies.places
        self._clock = clock
        self._due: dict[SessionId | Place, set[tuple[EntryId, Place | None]]] = {}
        self._rewritten: set[SessionId] = set()
        self._troubled: set[object] = set()
        self._closed = False
        """Whether a journal may have been closed that is not filed yet."""
        self._wakeup = Wakeup()
        self._one_round = asyncio.Lock()

    @property
    def behind(self) -> bool:
        """Whether anything is queued or being copied."""
        return bool(self._due) or self._one_round.locked()

    def changed(self, what: SessionId | Place, *stored: tuple[EntryId, Place | None]) -> None:
        """Queue a session with committed rows; `stored` are arrivals and their files. Never blocks.

        A file that may be wrong is queued itself, with arrivals in it that will never be stored.
        """
        self._due.setdefault(what, set()).update(stored)
        self._wakeup.set()

    def rewrite(self, session: SessionId) -> None:
        """Queue a session whose copied rows have changed; never blocks."""
        self._rewritten.add(session)
        self.changed(session)

    async def look_at(self, place: Place) -> bool:
        """Correct a file; False if that must be retried. Raises `TryAgainLater`."""
        async with self._one_round:
            done = await self._tried(place, self._look_at(place, frozenset()))
        self._copies.release(place)
        return done

    async def run(self) -> None:
        """Copy until cancelled; every 30 s also what another process or a crash left."""
        swept = -inf
        while True:
            self._wakeup.clear()
            if everything := self._clock.monotonic() - swept >= IDLE:
                swept = self._clock.monotonic()
            done = await self.catch_up(everything=everything)
            await (self._wakeup.wait(IDLE) if done else self._clock.sleep(RETRY))
            await self._clock.sleep(GATHER)

    async def catch_up(self, *, everything: bool = True) -> bool:
        """Copy everything once, or what is queued; False if some of it must be retried."""
        async with self._one_round:
            try:
                return await self._round(everything)
            except TryAgainLater as exc:
                log.info("journal.waits", error=str(exc))
                return False

    async def _round(self, everything: bool) -> bool:
        unopened = await self._places.database.read(lambda conn: journals.unopened(conn, AT_ONCE)) if everything else []
        for left in unopened:
            self._due.setdefault(left.session_id, set())
        for kind in (UUID, Place):  # a session may queue a file
            for what in [each for each in self._due if isinstance(each, kind)]:
                await self._tried(what, self._done(what))
        look, self._closed = everything or self._closed, False
        unfiled = await self._places.database.read(lambda conn: journals.unfiled(conn, AT_ONCE)) if look else []
        filed = [await self._tried(journal.path, self._copies.file(journal)) for journal in unfiled]
        return not self._due and all(filed) and max(len(unopened), len(unfiled)) < AT_ONCE

    async def _tried(self, what: object, work: Awaitable[None]) -> bool:
        try:
            await work
        except (OSError, WorkspaceError) as exc:
            if what not in self._troubled:
                log.warning("journal.not_copied", of=str(what), error=str(exc))
            self._troubled.add(what)
            return False
        self._troubled.discard(what)
        return True

    async def _done(self, what: SessionId | Place) -> None:
        stored = self._due.pop(what)
        try:
            await (self._look_at(what, stored) if isinstance(what, Place) else self._copy(what, stored))
        except (OSError, WorkspaceError, TryAgainLater):
            self.changed(what, *stored)
            raise

    async def _copy(self, session: SessionId, stored: Set[tuple[EntryId, Place | None]]) -> None:
        arrived = [entry for entry, _ in stored]
        journal = await self._open(session, arrived)
        self._closed |= journal is None
        place = self._places.place_of(journal) if journal else None
        for _, written in stored:
            if written is not None and written != place:
                self._due.setdefault(written, set())
        if journal is not None and session in self._rewritten:
            self._rewritten.discard(session)
            await self._copies.put_right(journal)
        elif journal is not None:
            await self._copies.bring(journal, arrived)

    async def _look_at(self, place: Place, stored: Set[tuple[EntryId, Place | None]]) -> None:
        journal = await self._places.journal_at(place)
        done_with = {entry for entry, _ in stored}
        if journal is None:
            await self._copies.clear(place, done_with)
        else:
            await self._copies.put_right(journal, done_with)

    async def _open(self, session: SessionId, stored: list[EntryId]) -> JournalRow | None:
        """The session's open journal, opened now if rows need one; None if it has no rows to copy."""
        async with self._places.database.connection() as conn:
            journal = await journals.open_for(conn, session)
            unopened = [] if journal else await journals.unopened(conn, 1, session)
        return await self._begin(unopened[0], stored) if unopened else journal

    async def _begin(self, unopened: UnopenedJournal, stored: list[EntryId]) -> JournalRow | None:
        place = await self._places.writer.create(self._places.root_of(unopened.principal_id), unopened.since)
        journal = await self._places.database.run(lambda tx: _begin(tx, unopened, place.path, stored))
        if journal is None or journal.path != place.path:
            await self._places.writer.remove(place, set())
        return journal


async def _begin(tx: Connection, unopened: UnopenedJournal, path: str, stored: list[EntryId]) -> JournalRow | None:
    """The session's open journal; one that is opened after the session's end is closed at once."""
    session = unopened.session_id
    await sessions.lock(tx, session)
    journal = await journals.begin(tx, session, unopened.principal_id, path, stored)
    if journal is None:
        return await journals.open_for(tx, session)
    if unopened.ended:
        await journals.close(tx, session, summarise(*await journals.outline(tx, session)))
    return journal

"""The check of journal files: finds those that may be wrong at a start, and corrects them in the background."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog

from gateway.beside import at_most
from gateway.domain.conversation.inbound import Arrival
from gateway.domain.errors import TryAgainLater
from gateway.domain.ids import SessionId
from gateway.domain.time import Clock
from gateway.flow.journal.copies import Copies
from gateway.flow.journal.copyist import Copyist
from gateway.store.transcript import journals
from gateway.store.transcript.journals import CopyMark, JournalRow
from gateway.workspace.journal.files import Place, Version, exists, sessions

FIRST_FILES, FIRST_BYTES = 32, 1024 * 1024
"""Files and bytes that are read before messages are accepted, the newest files first; the others follow."""
SHARE, QUICK_SHARE = 0.05, 0.5
"""Shares of the time for reading files: in general, and for files written since the last complete check."""
PAGE = 500
RETRY = 5.0

Found = list[tuple[Arrival, Place]]

log = structlog.get_logger(__name__)


@dataclass
class Check:
    """Checks files once after each `begin`; `unstored` reads the arrivals in files that the database lacks."""

    copies: Copies
    copyist: Copyist
    clock: Clock
    unstored: Callable[[Sequence[Place]], Awaitable[Found]]

    def __post_init__(self) -> None:
        self._places = self.copies.places
        self._checked = self.copies.checked
        self._restore: Callable[[Found], Awaitable[None]] | None = None
        self._left: dict[Place, bool] = {}
        """Files that may be wrong, and whether all arrivals in them are stored."""
        self._quick = 0
        self._looking = asyncio.Lock()
        self._begun = asyncio.Event()
        self._complete = False

    def holds(self, place: Place) -> bool:
        """Whether the file may be wrong."""
        return place in self._left

    async def begin(self) -> Found:
        """List the files that changed since the last check. Returns unstored arrivals of the newest."""
        newest = await self._places.database.read(journals.newest)
        async with self._looking:
            sizes = await asyncio.to_thread(self._unknown, newest)
            read = itertools.accumulate(itertools.islice(sizes.values(), FIRST_FILES))
            first = [place for place, size in zip(sizes, read, strict=False) if size <= FIRST_BYTES]
            found = await self.unstored(first)
            self._left = dict.fromkeys(sizes, False) | dict.fromkeys(first, True)
        self._begun.set()
        return found

    def begun(self, restore: Callable[[Found], Awaitable[None]]) -> None:
        """Continue after the arrivals of `begin` are stored; `restore` stores further ones."""
        self._restore = restore

    async def run(self) -> None:
        """Correct the files that `begin` lists, each time, until cancelled."""
        while True:
            await self._begun.wait()
            self._begun.clear()
            await self.put_right()

    async def put_right(self) -> None:
        """Correct all files that changed, lack rows or are gone: once, at a limited rate."""
        while not await self._list_lagging():
            await self.clock.sleep(RETRY)
        for number in itertools.count():
            if not self._left:
                break
            share = QUICK_SHARE if number < self._quick else SHARE
            place, began = next(iter(self._left)), self.clock.monotonic()
            done = await self._look_at(place)
            await self.clock.sleep((self.clock.monotonic() - began) * (1 / share - 1) if done else RETRY)
        self._complete = True
        await self.save()

    async def before_writing(self, place: Place) -> None:
        """Store earlier arrivals of the file first, if that takes no longer than `RETRY`."""
        if not self._left.get(place, True):
            async with at_most(RETRY):
                await self._look_at(place)

    async def _look_at(self, place: Place) -> bool:
        """Store the arrivals that only this file has, then correct it; False if that must be retried."""
        async with self._looking:
            if (stored := self._left.pop(place, None)) is None:
                return True
            self._left[place] = stored  # after the others, until it is right
            try:
                if not stored and self._restore:
                    await self._restore(await self.unstored([place]))
                    self._left[place] = True
                if not await self.copyist.look_at(place):
                    return False
            except TryAgainLater as exc:
                log.info("journal.waits", error=str(exc))
                return False
            del self._left[place]
            return True

    async def save(self, newest: CopyMark | None = None) -> bool:
        """Save which files are right; with `newest`, that every file has its rows up to there."""
        if self._restore is None:
            return False
        if newest is not None and self._complete:
            self._checked.move(newest)
        self.copies.learn()
        await asyncio.to_thread(self._checked.save, self._checked.state())
        return self._complete and newest is not None

    def _unknown(self, newest: CopyMark) -> dict[Place, int]:
        """Session files that may be wrong, with their sizes, the last written first."""
        self._checked.load(newest)
        there = [each for root in self._places.roots() for each in _sessions(root)]
        unknown = sorted(self._checked.unknown(there), key=lambda each: each[1][2], reverse=True)
        self._quick = sum(written >= self._checked.at for _, (_, _, written, _) in unknown)
        return {place: size for place, (_, size, *_) in unknown}

    async def _list_lagging(self) -> bool:
        """List files that lack rows or are gone; False while the database is unavailable."""
        last = SessionId(UUID(int=0))
        with suppress(TryAgainLater):
            async with self._places.database.connection() as conn:
                self._expect(await journals.with_rows_after(conn, self._checked.rows))
            while True:
                async with self._places.database.connection() as conn:
                    page = await journals.all_open(conn, last, PAGE)
                if not page:
                    return True
                self._expect(await asyncio.to_thread(self._gone, page))
                last = page[-1].session_id
        return False

    def _expect(self, lagging: Sequence[JournalRow]) -> None:
        for journal in lagging:
            self._left.setdefault(self._places.place_of(journal), True)

    def _gone(self, page: Sequence[JournalRow]) -> list[JournalRow]:
        return [journal for journal in page if not exists(self._places.place_of(journal))]


def _sessions(root: Path) -> list[tuple[Place, Version]]:
    try:
        return list(sessions(root))
    except OSError as exc:
        log.warning("journal.unreadable", path=str(root), error=str(exc))
        return []

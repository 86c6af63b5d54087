"""The spool: what arrived while the database was away. It is on disk in the journal, and waits here in order."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

from gateway.domain.conversation.inbound import Arrival
from gateway.domain.errors import TryAgainLater
from gateway.flow.inbound.outages import Outages
from gateway.flow.inbound.quarantine import Quarantine
from gateway.flow.journal.journal import Journal
from gateway.workspace.journal.files import Place

LIMIT = 10_000
AGAIN_AFTER = 1.0
OTHERS_FIRST_AFTER = 20
"""Tries in which the database refused one message and took another: then those behind it need not wait for it."""

Stored = TypeVar("Stored")

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Waiting(Generic[Stored]):
    arrival: Arrival
    place: Place
    refused: int = 0
    stored: "asyncio.Future[Stored]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(slots=True)
class Spool(Generic[Stored]):
    """Acknowledges by the disk, not the database. What a crash leaves in it, the next start finds in the journal."""

    journal: Journal
    outages: Outages
    store: Callable[[Arrival, Place], Awaitable[Stored | None]]
    """None while the database takes nothing; raises what is the arrival's own fault."""
    put_aside: Callable[[Arrival, Exception], Awaitable[Stored]]
    works: Callable[[], Awaitable[bool]]
    """Whether the database takes another message."""
    _quarantine: Quarantine = field(default_factory=Quarantine, init=False)
    _waiting: deque[_Waiting[Stored]] = field(default_factory=deque, init=False)
    _filled: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def waiting(self) -> bool:
        """Whether what arrives now has to queue up behind something."""
        return bool(self._waiting)

    async def add(self, arrival: Arrival, place: Place | None) -> "asyncio.Future[Stored]":
        """On disk when this returns; the future tells what became of it. Raises `TryAgainLater` when it is not."""
        if place is None or len(self._waiting) >= LIMIT:
            raise TryAgainLater("the database is unavailable, and this message can't be stored without it")
        await self.journal.sync(place)
        entry: _Waiting[Stored] = _Waiting(arrival, place)
        self._waiting.append(entry)
        self.outages.note(arrival.inbound.address, private=arrival.inbound.private)
        self._filled.set()
        return entry.stored

    async def run(self) -> None:
        """Store what waits as soon as the database takes it, until cancelled."""
        while True:
            if self._waiting:
                while self._waiting:
                    await self._store_next(self._waiting[0])
                self.outages.over()
                log.info("spool.empty")
            self._filled.clear()
            await self._filled.wait()

    async def drain(self, seconds: float) -> None:
        """Let what waits now be stored, for that long at most; `run` goes on meanwhile."""
        if waiting := [entry.stored for entry in self._waiting]:
            await asyncio.wait(waiting, timeout=seconds)

    async def _store_next(self, entry: _Waiting[Stored]) -> None:
        try:
            stored = await self.store(entry.arrival, entry.place)
        except Exception as exc:
            log.exception("spool.broken", entry=str(entry.arrival.id))
            gave_up = self._quarantine.give_up((str(entry.arrival.id),))
            stored = await self.put_aside(entry.arrival, exc) if gave_up else None
        if stored is None:
            entry.refused += await self.works()
            if entry.refused >= OTHERS_FIRST_AFTER:
                self._waiting.rotate(-1)
            await asyncio.sleep(AGAIN_AFTER)
            return
        self._waiting.popleft()
        if not entry.stored.cancelled():
            entry.stored.set_result(stored)

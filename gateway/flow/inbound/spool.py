"""The spool: during an outage of the database messages wait in order and their chats get a notice. A message that can't
be stored is set aside after some tries."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog
from cachetools import LRUCache

from gateway.domain.channels.channel import Outgoing
from gateway.domain.conversation.inbound import Address, Arrival
from gateway.domain.errors import TryAgainLater
from gateway.domain.time import Clock
from gateway.flow.inbound.persistence import Accepted
from gateway.flow.journal.journal import Journal
from gateway.flow.outbound.sender import Outbound
from gateway.workspace.journal.files import Place

QUARANTINE_TRIES = 3
MAX_FAILURES_REMEMBERED = 1_000


class Quarantine:
    """Counts the failures of each message; the platform sends it again until it is accepted."""

    def __init__(self) -> None:
        self._failures: LRUCache[tuple[str, ...], int] = LRUCache(MAX_FAILURES_REMEMBERED)

    def give_up(self, key: tuple[str, ...]) -> bool:
        """Count a failure. Returns whether the message should be set aside."""
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        return failures >= QUARANTINE_TRIES


SAVED_NOTICE = "Your message is saved, but my database is unavailable. I'll reply as soon as it's back."
NOTICE_AFTER_SECONDS = 5.0
"""Seconds before a chat is told, so that a restart of the database goes unnoticed."""
NOTICE_SECONDS = 10.0
MAX_CHATS_WAITING = 10_000

log = structlog.get_logger(__name__)


class Outages:
    """Tells waiting chats, once per outage, that the database is unavailable; sent past the outbox, at most once.

    `works` checks whether the database is back.
    """

    def __init__(self, works: Callable[[], Awaitable[bool]], outbound: Outbound, clock: Clock) -> None:
        self._works = works
        self._outbound = outbound
        self._clock = clock
        self._waiting: dict[Address, bool] = {}
        self._told: set[Address] = set()
        self._noted = asyncio.Event()

    def note(self, at: Address, *, private: bool) -> None:
        """Note that this chat waits for the database; never blocks."""
        if len(self._waiting) < MAX_CHATS_WAITING:
            self._waiting[at] = private
            self._noted.set()

    def over(self) -> None:
        """End the outage; the next one is announced again."""
        self._waiting.clear()
        self._told.clear()

    async def run(self) -> None:
        """Tell the chats that still wait after `NOTICE_AFTER_SECONDS`, until cancelled."""
        while True:
            await self._noted.wait()
            await self._clock.sleep(NOTICE_AFTER_SECONDS)
            self._noted.clear()
            if await self._works():
                self.over()
            for at, private in list(self._waiting.items()):
                if at in self._waiting and at not in self._told:
                    self._told.add(at)
                    notice = Outgoing(at, SAVED_NOTICE, key=f"outage {at.chat}", private=private)
                    await self._outbound.send_past(notice, NOTICE_SECONDS)


MAX_SPOOLED = 10_000
RETRY_SECONDS = 1.0
OTHERS_FIRST_AFTER = 20
"""Failed tries of a message while the database stores others; then the messages behind it go first."""


@dataclass(slots=True)
class _Waiting:
    arrival: Arrival
    place: Place
    refused: int = 0
    stored: "asyncio.Future[Accepted]" = field(default_factory=lambda: asyncio.get_running_loop().create_future())


@dataclass(slots=True)
class Spool:
    """Messages that are on disk, but not in the database. After a crash the next start finds them in the journal."""

    journal: Journal
    outages: Outages
    store: Callable[[Arrival, Place], Awaitable[Accepted | None]]
    """Returns None while the database is unavailable; raises for a message that can't be stored."""
    put_aside: Callable[[Arrival, Exception], Awaitable[Accepted]]
    works: Callable[[], Awaitable[bool]]
    """Whether the database could store another message."""
    _quarantine: Quarantine = field(default_factory=Quarantine, init=False)
    _waiting: deque[_Waiting] = field(default_factory=deque, init=False)
    _filled: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def waiting(self) -> bool:
        """Whether acknowledged messages are on this machine alone, so that new ones have to queue."""
        return bool(self._waiting)

    async def add(self, arrival: Arrival, place: Place | None) -> "asyncio.Future[Accepted]":
        """Queue an arrival, on disk on return; the future has its result. Raises `TryAgainLater` if it can't be."""
        if place is None or len(self._waiting) >= MAX_SPOOLED:
            raise TryAgainLater("the database is unavailable, and this message can't be stored without it")
        await self.journal.sync(place)
        entry = _Waiting(arrival, place)
        self._waiting.append(entry)
        self.outages.note(arrival.inbound.address, private=arrival.inbound.private)
        self._filled.set()
        return entry.stored

    async def run(self) -> None:
        """Store queued messages once the database is back, until cancelled."""
        while True:
            if self._waiting:
                while self._waiting:
                    await self._store_next(self._waiting[0])
                self.outages.over()
                log.info("spool.empty")
            self._filled.clear()
            await self._filled.wait()

    async def drain(self, seconds: float) -> None:
        """Wait until the messages queued now are stored and another gateway can answer them, at most for `seconds`."""
        if waiting := [entry.stored for entry in self._waiting]:
            await asyncio.wait(waiting, timeout=seconds)

    async def _store_next(self, entry: _Waiting) -> None:
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
            await asyncio.sleep(RETRY_SECONDS)
            return
        self._waiting.popleft()
        if not entry.stored.cancelled():
            entry.stored.set_result(stored)

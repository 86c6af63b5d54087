"""The spool: what arrives while the database is unavailable waits in order, its chats are told once, and a message that
can't be stored is set aside after some tries."""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import structlog

from gateway.domain.channels.channel import Outgoing
from gateway.domain.conversation.inbound import Address, Arrival
from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.time import Clock
from gateway.flow.journal.journal import Journal
from gateway.flow.outbound.sender import Outbound
from gateway.workspace.journal.files import Place

QUARANTINE_TRIES = 3
MAX_FAILURES_REMEMBERED = 1_000


class Quarantine:
    """Counts the failures of each message; the platform sends it again until we take it."""

    def __init__(self) -> None:
        self._failures: Counter[tuple[str, ...]] = Counter()

    def give_up(self, key: tuple[str, ...]) -> bool:
        """Note a failure; whether it was one too many."""
        if key not in self._failures and len(self._failures) >= MAX_FAILURES_REMEMBERED:
            self._failures.clear()
        self._failures[key] += 1
        return self._failures[key] >= QUARANTINE_TRIES


SAVED_NOTICE = "Your message is saved, but my database is unavailable. I'll reply as soon as it's back."
NOTICE_AFTER_SECONDS = 5.0
"""Seconds: a restart of the database is not worth a word."""
NOTICE_SECONDS = 10.0
MAX_CHATS_WAITING = 10_000

log = structlog.get_logger(__name__)


class Outages:
    """Words that go straight to a channel: no row can be written for them, so they are said at most once.

    `works` tells whether the database takes messages; perhaps nobody has had a reason to notice.
    """

    def __init__(self, works: Callable[[], Awaitable[bool]], outbound: Outbound, clock: Clock) -> None:
        self._works = works
        self._outbound = outbound
        self._clock = clock
        self._waiting: dict[Address, bool] = {}
        self._told: set[Address] = set()
        self._noted = asyncio.Event()

    def note(self, at: Address, *, private: bool) -> None:
        """Somebody waits there for the database; never blocks."""
        if len(self._waiting) < MAX_CHATS_WAITING:
            self._waiting[at] = private
            self._noted.set()

    def over(self) -> None:
        """The database answers again; the next outage is told anew."""
        self._waiting.clear()
        self._told.clear()

    async def run(self) -> None:
        """Tell those who still wait after a while, until cancelled."""
        while True:
            await self._noted.wait()
            await self._clock.sleep(NOTICE_AFTER_SECONDS)
            self._noted.clear()
            if await self._works():
                self.over()
            for at, private in list(self._waiting.items()):
                if at in self._waiting and at not in self._told:
                    await self._tell(at, private=private)

    async def _tell(self, at: Address, *, private: bool) -> None:
        """Best effort; what a platform does with it changes nothing."""
        self._told.add(at)
        if (channel := self._outbound.channel(at)) is None:
            return
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                await channel.send(Outgoing(at, SAVED_NOTICE, key=f"outage {at.chat}", private=private))
        except (SupaclawError, TimeoutError) as exc:
            log.info("outage.not_told", channel=at.channel, error=str(exc))
        except Exception:  # one channel may not keep the others from being told
            log.exception("outage.broken", channel=at.channel)


MAX_SPOOLED = 10_000
RETRY_SECONDS = 1.0
OTHERS_FIRST_AFTER = 20
"""Tries in which the database refused one message and took another: then those behind it need not wait for it."""

Stored = TypeVar("Stored")


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
        if place is None or len(self._waiting) >= MAX_SPOOLED:
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
            await asyncio.sleep(RETRY_SECONDS)
            return
        self._waiting.popleft()
        if not entry.stored.cancelled():
            entry.stored.set_result(stored)

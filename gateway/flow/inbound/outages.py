"""Outages: when the database is away for longer than a moment, the chats that wait hear once that they do."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from gateway.domain.channels.channel import Outgoing
from gateway.domain.clock import Clock
from gateway.domain.conversation.inbound import Address
from gateway.domain.errors import SupaclawError
from gateway.flow.outbound.sender import Outbound

KEPT = "Your message is saved, but my database is unavailable. I'll reply as soon as it's back."
PATIENCE = 5.0
"""Seconds: a restart of the database is not worth a word."""
TELL_WITHIN = 10.0
REMEMBERED = 10_000

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
        if len(self._waiting) < REMEMBERED:
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
            await self._clock.sleep(PATIENCE)
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
            async with asyncio.timeout(TELL_WITHIN):
                await channel.send(Outgoing(at, KEPT, key=f"outage {at.chat}", private=private))
        except (SupaclawError, TimeoutError) as exc:
            log.info("outage.not_told", channel=at.channel, error=str(exc))
        except Exception:  # one channel may not keep the others from being told
            log.exception("outage.broken", channel=at.channel)

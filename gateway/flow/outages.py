"""Outages: while the database is away, the chat hears once that its message is kept."""

import asyncio

import structlog

from gateway.domain.channel import Outgoing
from gateway.domain.errors import SupaclawError
from gateway.domain.inbound import Address
from gateway.flow.outbound import Outbound

KEPT = "I have kept your message, but my database does not answer. I will reply as soon as it is back."
TELL_WITHIN = 10.0
REMEMBERED = 10_000

log = structlog.get_logger(__name__)


class Outages:
    """Words that go straight to a channel: no row can be written for them, so they are said at most once."""

    def __init__(self, outbound: Outbound) -> None:
        self._outbound = outbound
        self._told: set[Address] = set()

    async def tell(self, at: Address, *, private: bool) -> None:
        """Say it in one chat, once per outage; best effort, never raises for what a platform does."""
        channel = self._outbound.channel(at)
        if channel is None or at in self._told or len(self._told) >= REMEMBERED:
            return
        self._told.add(at)
        try:
            async with asyncio.timeout(TELL_WITHIN):
                await channel.send(Outgoing(at, KEPT, key=f"outage {at.chat}", private=private))
        except (SupaclawError, TimeoutError) as exc:
            log.info("outage.not_told", channel=at.channel, error=str(exc))

    def over(self) -> None:
        """The database answers again; the next outage is told anew."""
        self._told.clear()

"""Arrivals: a turn begins when the files of its messages are there, or have kept it waiting for long enough."""

import asyncio
from contextlib import suppress

from gateway.domain.ids import SessionId
from gateway.flow.live import Live
from gateway.store import addresses, attachments
from gateway.store.addresses import AddressRow
from gateway.store.pool import Database

POLL_SECONDS = 2.0
"""What another process brings in, and a wait that is over, nobody tells of."""


class Arrivals:
    """Looks at the rows, and again whenever something happens in the session."""

    def __init__(self, database: Database, live: Live) -> None:
        self._database = database
        self._live = live

    async def awaited(self, session: SessionId) -> AddressRow | None:
        """Where the message came from that waits for its files; None when a turn may begin."""
        async with self._database.connection() as conn:
            at = await attachments.awaited(conn, session)
            return None if at is None else await addresses.get(conn, at)

    async def settled(self, session: SessionId) -> None:
        """Returns when no unread message waits for its files any more; each does so for 90 s at most."""
        with self._live.subscribe(session) as events:
            while await self.awaited(session):
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await events.get()

"""A conversation as it goes on: the stored rows, then what happens, through `/new`, overruns and a quiet beginning."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import TypeAlias

from gateway.domain.ids import SessionId
from gateway.domain.inbound import Address
from gateway.flow.live import Live, LiveEvent, Overrun, SessionReplaced, Subscription
from gateway.store import sessions
from gateway.store.pool import Database
from gateway.store.transcript import attachments, messages
from gateway.store.transcript.messages import MessageRow

SHOWN = 200
_LOOK_AGAIN_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything as it is now; `written` is the unfinished text of a running turn, None when none runs."""

    session: SessionId | None
    rows: tuple[MessageRow, ...]
    written: str | None


News: TypeAlias = Snapshot | tuple[LiveEvent, ...]


class Conversations:
    """Follows addresses. Where nothing was ever said there is no session yet; `begun` tells when there is."""

    def __init__(self, database: Database, live: Live) -> None:
        self._database = database
        self._live = live
        self._first = asyncio.Event()

    def begun(self) -> None:
        """Something was accepted: perhaps the first message of an address that is being followed."""
        self._first.set()
        self._first = asyncio.Event()

    async def follow(self, address: Address, *, pace: float = 0.0) -> AsyncGenerator[News, None]:
        """A snapshot, then what happens in batches, `pace` seconds apart at least; a snapshot again where needed."""
        while True:
            session = await self._session(address)
            if session is None:
                yield Snapshot(None, (), None)
                session = await self._first_session(address)
            with self._live.subscribe(session) as events:
                if await self._session(address) != session:
                    continue
                yield await self.snapshot(session)
                async with aclosing(self._until_replaced(session, events, pace)) as going_on:
                    async for news in going_on:
                        yield news

    async def snapshot(self, session: SessionId) -> Snapshot:
        """The session as it is stored, and as far as its answer is written."""
        async with self._database.connection() as conn:
            rows = await attachments.joined(conn, await messages.shown(conn, session, limit=SHOWN))
        written = self._live.written(session)
        if written and any(row.kind == "assistant" and row.text == written for row in rows[-2:]):
            written = ""
        return Snapshot(session, tuple(rows), written)

    async def _until_replaced(
        self, session: SessionId, events: Subscription, pace: float
    ) -> AsyncGenerator[News, None]:
        while True:
            batch = [await events.get()]
            await asyncio.sleep(pace)
            batch += events.ready()
            if any(isinstance(event, SessionReplaced) for event in batch):
                return
            if any(isinstance(event, Overrun) for event in batch):
                yield await self.snapshot(session)
            else:
                yield tuple(batch)

    async def _session(self, address: Address) -> SessionId | None:
        async with self._database.connection() as conn:
            return await sessions.current(conn, address)

    async def _first_session(self, address: Address) -> SessionId:
        """Woken by what this process accepts; looks now and then for what another one did."""
        while True:
            first = self._first
            if (session := await self._session(address)) is not None:
                return session
            try:
                async with asyncio.timeout(_LOOK_AGAIN_SECONDS):
                    await first.wait()
            except TimeoutError:
                continue

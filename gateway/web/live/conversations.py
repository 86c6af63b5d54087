"""Follows a conversation: its stored rows, then live events, across `/new`, overruns and a first session."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeAlias

from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import SessionId
from gateway.flow.live import Live, LiveEvent, Overrun, SessionReplaced, Subscription
from gateway.flow.signals import Wakeup
from gateway.store.connection.pool import Connection, Database
from gateway.store.files import attachments
from gateway.store.people import accounts, pairings
from gateway.store.transcript import conversations, messages, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.trust import reviews
from gateway.web.live.entries import Question, name_of, names_in

SHOWN = 200
_POLL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The current state; `written` is the unfinished text of the running turn, None if none is running.

    `thought` is what its model thought so far.
    """

    session: SessionId | None
    rows: tuple[MessageRow, ...]
    written: str | None
    thought: str = ""
    questions: tuple[Question, ...] = ()
    """The questions in these rows that are open."""


Update: TypeAlias = Snapshot | tuple[LiveEvent, ...]


class Conversations:
    """Follows addresses. A new address has no session yet; `notify_accepted` signals that one may exist."""

    def __init__(self, database: Database, live: Live) -> None:
        self._database = database
        self._live = live
        self._first = Wakeup()

    def notify_accepted(self) -> None:
        """Signal that a message was accepted: it may be the first of an address that is being followed."""
        self._first.set()
        self._first = Wakeup()

    async def refresh(self, address: Address) -> None:
        """Have everybody who follows the address read its rows again: what they show of them has changed."""
        if (session := await self._session(address)) is not None:
            self._live.publish(session, Overrun())

    async def follow(self, address: Address, *, pace: float = 0.0) -> AsyncGenerator[Update, None]:
        """Yield a snapshot, then events in batches at least `pace` seconds apart; further snapshots where needed."""
        while True:
            session = await self._session(address)
            if session is None:
                yield Snapshot(None, (), None)
                session = await self._first_session(address)
            with self._live.subscribe(session) as events:
                if await self._session(address) != session:
                    continue
                yield await self.snapshot(session)
                async with aclosing(self._until_new_session(session, events, pace)) as updates:
                    async for update in updates:
                        yield update

    async def snapshot(self, session: SessionId) -> Snapshot:
        """The stored session, and its answer as written so far."""
        async with self._database.connection() as conn:
            rows = await messages.shown(conn, session, limit=SHOWN)
            rows = conversations.with_memories(await attachments.with_attachments(conn, rows))
            rows = await conversations.with_thoughts(conn, rows)
            rows = await conversations.with_versions(conn, await conversations.with_costs(conn, rows))
            questions = await _open_questions(conn, rows)
        written = self._live.written(session)
        if written and any(row.kind == "assistant" and row.text == written for row in rows[-2:]):
            written = ""
        return Snapshot(session, tuple(rows), written, self._live.thought(session), tuple(questions))

    async def _until_new_session(
        self, session: SessionId, events: Subscription, pace: float
    ) -> AsyncGenerator[Update, None]:
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
        return await self._database.read(lambda conn: sessions.current(conn, address))

    async def _first_session(self, address: Address) -> SessionId:
        """Wait for the first session: woken when this process accepts a message; polls for other processes."""
        while True:
            first = self._first
            if (session := await self._session(address)) is not None:
                return session
            await first.wait(_POLL_SECONDS)


async def _open_questions(conn: Connection, rows: Sequence[MessageRow]) -> Sequence[Question]:
    asked = {name for row in rows if row.kind == "notice" for name in names_in(row.text)}
    if not asked:
        return ()
    found: list[Question] = [*await pairings.open_requests(conn), *await accounts.claims(conn, rows[-1].principal_id)]
    found += await reviews.list_open(conn, rows[-1].principal_id, datetime.now(UTC))
    return [question for question in found if name_of(question) in asked]

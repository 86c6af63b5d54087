"""Memory in a turn: the memories that its prompt has without a search."""

import asyncio
from collections.abc import Set
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog
from cachetools import LRUCache

from gateway.agent.memory.search import (
    ALWAYS,
    QUESTION_CHARACTERS,
    MemoryQuery,
    MemorySearch,
    Visible,
    bootstrap_context,
    recall,
    recall_limit,
)
from gateway.domain.conversation.model import PromptPart
from gateway.domain.ids import MessageId, SessionId
from gateway.domain.memory.memories import ALL_MEMORIES, Embedders
from gateway.domain.principals import Label
from gateway.flow.turn.opening import OpenedTurn, Reminder, raise_label
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import Bootstrap
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import search

MAX_SESSIONS_REMEMBERED = 256
"""Sessions whose bootstrap is cached."""

VECTOR_SECONDS = 1.0
"""How long a turn waits for its question's vector, while its environment is built; a cold model takes about 0.8."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """Reads the reminder of a turn; it is not stored in the transcript."""

    database: Database
    embedder: Embedders
    _bootstraps: LRUCache[tuple[SessionId, datetime, Label, str], Bootstrap] = field(
        default_factory=lambda: LRUCache(MAX_SESSIONS_REMEMBERED)
    )

    async def question(self, opened: OpenedTurn) -> MemoryQuery:
        """The turn's messages as a question, by words alone if there is no vector within `VECTOR_SECONDS`."""
        if not opened.remembers:
            return MemoryQuery("", ())
        said = "\n".join(row.text for row in opened.asked if not row.withdrawn)[-QUESTION_CHARACTERS:]
        try:
            async with asyncio.timeout(VECTOR_SECONDS):
                return await MemorySearch(self.database, self.embedder).parse(said)
        except TimeoutError:
            log.info("turn.recalls_by_words")
            return MemoryQuery(said, lexemes(said))

    async def reminded(self, opened: OpenedTurn, question: MemoryQuery, zone: str | None) -> OpenedTurn:
        """The turn with its reminder, with days in the zone; its label, and its session's, rise to theirs."""
        if not opened.remembers:
            return opened
        async with self.database.connection() as conn:
            standing, other_versions = await self._bootstrap(conn, opened, zone)
            label = max(standing.label, opened.label)
            rows = (*opened.history, *opened.transcript)
            visible = Visible({row.id for row in rows} | other_versions, {memory.id for memory in standing.shown})
            at_most = min(label, recall_limit(opened.principal.role, label))
            whose, now = opened.principal.id, opened.asked[-1].created_at
            recalled = await recall(conn, whose, question, visible, at_most=at_most, now=now, zone=zone)
        label = max(label, recalled.label)
        if label > opened.label:
            await self.database.run(lambda tx: raise_label(tx, opened.run, opened.session, label))
            log.info("turn.told_by_memory", label=label.name)
        return replace(opened, label=label, reminder=Reminder(PromptPart(standing.text, standing.label), recalled))

    async def _bootstrap(
        self, conn: Connection, opened: OpenedTurn, zone: str | None
    ) -> tuple[Bootstrap, Set[MessageId]]:
        """The bootstrap as of the conversation's first message or summary, so that it is the same in every turn.

        With it, the other versions of the conversation's messages.

        It is built again only after one of its memories was changed or forgotten.
        """
        first = next(row for row in opened.transcript if row.kind in ("user", "summary"))
        whose, session, as_of = opened.principal.id, opened.session, first.created_at
        at_most = recall_limit(opened.principal.role, first.label)
        digest, others = await search.bootstrap_version(conn, whose, session, as_of, ALWAYS, at_most)
        key = session, as_of, at_most, f"{zone} {digest}"
        if (cached := self._bootstraps.get(key)) is None:
            cached = self._bootstraps[key] = await bootstrap_context(
                conn, whose, as_of, session=session, at_most=at_most, reach=ALL_MEMORIES, zone=zone
            )
        return cached, others

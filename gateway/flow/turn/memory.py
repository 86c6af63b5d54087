"""Memory in a turn: what its prompt is told unasked, and whether its run may use memory at all."""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import datetime

import structlog

from gateway.agent.memory.search import ALWAYS, Visible, bootstrap_context, recall, recall_limit
from gateway.domain.ids import SessionId
from gateway.domain.principals import Label
from gateway.flow.turn.opening import OpenedTurn, Reminder, raise_label
from gateway.memory.wording import Bootstrap
from gateway.store.connection.pool import Connection, Database
from gateway.store.memory import bootstrap
from gateway.store.transcript import conversations

MAX_SESSIONS_REMEMBERED = 256
"""Sessions whose beginnings are kept."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Told:
    """What a session was told, as long as its version is `version`."""

    version: str
    bootstrap: Bootstrap


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """Reads what a turn is reminded of; nothing of it is stored in the transcript."""

    database: Database
    _told: OrderedDict[tuple[SessionId, datetime, Label], _Told] = field(default_factory=OrderedDict)

    async def reminded(self, opened: OpenedTurn) -> OpenedTurn:
        """The turn with its reminder, and with the label of what is in it, to which its session rises.

        A heartbeat gets none: it looks at what is due now, often, and is to stay cheap; its tools can search.
        """
        if not opened.private or opened.heartbeat:
            return opened
        async with self.database.connection() as conn:
            told = await self._bootstrap(conn, opened)
            label = max(told.label, opened.label)
            question = "\n".join(row.text for row in opened.asked)
            rows = (*opened.history, *opened.transcript)
            taken_back = await conversations.other_versions(conn, opened.session)
            visible = Visible({row.id for row in rows} | taken_back, {memory.id for memory in told.shown})
            at_most = min(label, recall_limit(opened.principal.role, label))
            recalled = await recall(conn, opened.principal.id, question, visible, at_most=at_most)
        if label > opened.label:
            await self.database.run(lambda tx: raise_label(tx, opened.run, opened.session, label))
            log.info("turn.told_by_memory", label=label.name)
        return replace(opened, label=label, reminder=Reminder(told.text, recalled))

    async def _bootstrap(self, conn: Connection, opened: OpenedTurn) -> Bootstrap:
        """As of the conversation's first message, or of the summary in its place: the same in every turn from there.

        The notice before it is as old as the end of the last conversation, whose summary was made after that. It is
        made again only when something of it was changed or forgotten.
        """
        first = next(row for row in opened.transcript if row.kind in ("user", "summary"))
        whose, session, as_of = opened.principal.id, opened.session, first.created_at
        at_most = recall_limit(opened.principal.role, first.label)
        version = await bootstrap.version(conn, whose, session, as_of, ALWAYS, at_most)
        told = self._told.pop((session, as_of, at_most), None)
        if told is None or told.version != version:
            made = await bootstrap_context(conn, whose, as_of, session=session, at_most=at_most)
            told = _Told(version, made)
        self._told[session, as_of, at_most] = told
        if len(self._told) > MAX_SESSIONS_REMEMBERED:
            self._told.popitem(last=False)
        return told.bootstrap

"""Memory in a turn: what its prompt is told unasked, and whether its run may use memory at all."""

from dataclasses import dataclass, replace

import structlog

from gateway.agent.memory.bootstrap import bootstrap_context
from gateway.agent.memory.recall import Visible, recall, shown_to
from gateway.domain.principals import Label
from gateway.domain.tasks import Claim
from gateway.flow.turn.open import OpenedTurn, Reminder
from gateway.memory.wording import Bootstrap
from gateway.store import sessions, tasks
from gateway.store.pool import Connection, Database

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TurnMemory:
    """Reads what a turn is reminded of; nothing of it is stored in the transcript."""

    database: Database

    async def reminded(self, run: Claim, opened: OpenedTurn) -> OpenedTurn:
        """The turn with its reminder, and with the label of what is in it, to which its session rises.

        A heartbeat gets none: it looks at what is due now, often, and is to stay cheap; its tools can search.
        """
        if not opened.private or opened.heartbeat:
            return opened
        told = await self._bootstrap(opened)
        if told.label > opened.label:
            await self.database.run(lambda tx: _taint(tx, run, opened, told.label))
            opened = replace(opened, label=told.label)
        question = "\n".join(row.text for row in opened.asked)
        rows = (*opened.history, *opened.transcript)
        visible = Visible({row.id for row in rows}, {memory.id for memory in told.shown})
        at_most = min(opened.label, shown_to(opened.principal.role, opened.label))
        recalled = await recall(self.database, run.principal_id, question, visible, at_most=at_most)
        return replace(opened, reminder=Reminder(told.text, recalled))

    async def _bootstrap(self, opened: OpenedTurn) -> Bootstrap:
        """As of the conversation's first message, or of the summary in its place: the same in every turn from there.

        The notice before it is as old as the end of the last conversation, whose summary was made after that.
        """
        first = next(row for row in opened.transcript if row.kind in ("user", "summary"))
        async with self.database.connection() as conn:
            return await bootstrap_context(
                conn,
                opened.principal.id,
                first.created_at,
                session=opened.session,
                at_most=shown_to(opened.principal.role, first.label),
            )


async def _taint(tx: Connection, run: Claim, opened: OpenedTurn, label: Label) -> None:
    await sessions.lock(tx, opened.session)
    await tasks.hold(tx, run)
    await sessions.taint(tx, opened.session, label)
    log.info("turn.told_by_memory", label=label.name)

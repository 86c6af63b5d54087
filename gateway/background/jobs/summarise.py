"""`summarise`: summarises an ended conversation, and stores the facts worth remembering."""

import asyncio
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import structlog

from gateway.agent.conversation.compaction import (
    LONGEST_SUMMARY,
    Cut,
    Sections,
    lasting_facts,
    read_summary,
    summary_prompt,
    without_model,
)
from gateway.background.budgets import BackgroundModel
from gateway.background.jobs import Job, JobParts
from gateway.domain.conversation.model import Reply
from gateway.domain.ids import SessionId
from gateway.domain.json import Json
from gateway.domain.memory.memories import NewMemory
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim
from gateway.flow.turn.compaction import remember
from gateway.flow.turn.loop import MIN_PROMPT_TOKENS
from gateway.store.connection.pool import Connection
from gateway.store.files import attachments
from gateway.store.memory import memories
from gateway.store.transcript import messages, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import tasks

FEWEST_QUESTIONS = 2
"""Shorter conversations keep their last messages; no summary could be shorter."""
ORIGIN = "summary"

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Ended:
    session: SessionId
    agent: str
    label: Label
    what: Cut


@dataclass(slots=True)
class Summarise(Job):
    """Asks a model once, at the end of a conversation; without a model, rules make the summary.

    A conversation whose task failed keeps its last messages instead.
    """

    model: BackgroundModel

    async def run(self, run: Claim) -> None:
        """Store the summary and the facts, all or nothing; raises `RunLost`."""
        ended = await self._ended(run)
        reply = None
        if ended and (model := self.model.connected()) is not None:
            limits = max(model.prompt_budget(), MIN_PROMPT_TOKENS), LONGEST_SUMMARY
            reply = await self.model.ask(model, await asyncio.to_thread(summary_prompt, ended.what, *limits), run)
        made = await asyncio.to_thread(_made, ended.what, reply) if ended else {}

        async def store(tx: Connection) -> None:
            if ended is not None:
                await _store(tx, run, ended, made)

        await self.complete(run, [reply], store)

    async def _ended(self, run: Claim) -> _Ended | None:
        """The conversation to summarise; None if it is too short."""
        async with self.engine.database.connection() as conn:
            match await tasks.payload(conn, run.id):
                case {"session": str(id), **more}:
                    session, until = SessionId(UUID(id)), more.get("until")
                case _:
                    return None
            own = [row for row in await messages.transcript(conn, session) if row.session_id == session]
            forgotten = await memories.forgotten(conn, run.principal_id, [row.id for row in own])
            rows = await attachments.with_attachments(conn, [row for row in own if _within(row, until)])
            label, agent = await sessions.label(conn, session), await sessions.agent(conn, session)
        previous = next((row for row in rows if row.kind == "summary"), None)
        covered = tuple(row for row in rows if row.kind != "summary")
        questions = sum(row.kind == "user" for row in covered)
        if not covered or (previous is None and questions < FEWEST_QUESTIONS):
            return None
        what = await asyncio.to_thread(Cut(previous, covered).without, *forgotten)
        return _Ended(session, agent, label, what) if what.covered else None


def _within(row: MessageRow, until: Json) -> bool:
    """Whether the row comes before the point where a branch continues; always true without a branch."""
    return not isinstance(until, int) or (row.seq or 0) <= until or (row.covers is not None and row.covers <= until)


def _made(what: Cut, reply: Reply | None) -> Sections:
    return (read_summary(reply.text) if reply else None) or without_model(what, LONGEST_SUMMARY)


async def _store(tx: Connection, run: Claim, ended: _Ended, sections: Sections) -> None:
    """Store the summary and its facts, with the label of the conversation."""
    new = partial(NewMemory, label=ended.label, origin=ORIGIN, agent=ended.agent, session=ended.session)
    await remember(tx, run.principal_id, new, sections, lasting_facts(sections), ended.what)
    log.info("session.summarised", session_id=str(ended.session))


def runner(parts: JobParts) -> Summarise:
    """The runner of `summarise` tasks."""
    return Summarise(parts.engine, parts.models.cheap)

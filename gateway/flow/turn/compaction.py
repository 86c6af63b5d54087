"""Compaction: a summary replaces the older part of a conversation that has grown too long."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog

from gateway.agent.conversation.compaction import (
    Cut,
    Sections,
    cut_of,
    goal_of,
    lasting_facts,
    longest_summary,
    read_summary,
    recap_of,
    summary_prompt,
    tokens_of,
    without_model,
    written_summary,
)
from gateway.config.failpoints import Step
from gateway.domain.conversation.model import ModelsExhausted, Reply
from gateway.domain.conversation.transcript import Summary
from gateway.domain.errors import RunLost, required
from gateway.domain.ids import MessageId, PrincipalId, SessionId
from gateway.domain.memory.memories import Category, Kind, NewMemory
from gateway.domain.work.tasks import Claim
from gateway.flow.engine import Engine
from gateway.flow.live import MessageStored, TurnStarted
from gateway.flow.turn.budgets import BudgetedModel, OutOfBudget, SharedBudgets
from gateway.flow.turn.loop import MIN_PROMPT_TOKENS, SizedModel, reply_of
from gateway.flow.turn.opening import OpenedTurn
from gateway.store.connection.pool import Connection
from gateway.store.delivery import addresses
from gateway.store.memory import memories
from gateway.store.transcript import journals, messages, sessions
from gateway.store.work import steps

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class NewSummary:
    """A summary that is not stored yet, the facts to remember, and the reply of the model that wrote them."""

    what: Cut
    sections: Sections
    facts: tuple[str, ...]
    limit: int
    reply: Reply | None


async def remember(
    tx: Connection, whose: PrincipalId, new: partial[NewMemory], sections: Sections, facts: Sequence[str], what: Cut
) -> None:
    """Learn the facts of a summary, and add a recap of it for other conversations."""
    for fact in facts:
        await memories.learn(tx, whose, new(fact, Category.FACT, sources=what.spoken))
    await memories.add(tx, whose, new(recap_of(sections), kind=Kind.SUMMARY))


@dataclass(frozen=True, slots=True)
class Compactor:
    """Summarises older messages, never one that still waits for an answer.

    The model is called outside of any transaction. Without one, or if it fails or its answer has another form, rules
    make the summary.
    """

    engine: Engine
    model: Callable[[], SizedModel | None]
    at_tokens: Callable[[], int]

    async def prepare(
        self, opened: OpenedTurn, room: int, budgets: SharedBudgets, *, overflow: bool = False
    ) -> OpenedTurn:
        """Compact, once, a transcript that is too long for `room` or for the configuration.

        On `overflow`, when a provider refused the prompt, everything that can be summarised is. Returns the turn to
        continue with, opened again if anything was written since.
        """
        at = min(self.at_tokens(), room)
        if overflow:
            opened = await self._reopened(opened)
        elif tokens_of(opened.transcript) < at:
            return opened
        what = cut_of(opened.transcript, opened.run.id, 0 if overflow else at // 4)
        if what is None:
            return opened
        model, run = self.model(), opened.run
        asked = model and BudgetedModel(model, budgets, run, opened.principal.role, tree=opened.agent is not None)
        summary = await self._written(asked, run.principal_id, what, longest_summary(at))
        self.engine.failpoints.reach(Step.SUMMARY_READY)
        stored = await self.engine.database.run(lambda tx: self._store(tx, run, opened.session, summary))
        self.engine.failpoints.reach(Step.SUMMARY_COMMITTED)
        if stored is not None:
            log.info("session.compacted", covers=what.last, rows=len(what.covered), facts=len(summary.facts))
            self.engine.live.publish(opened.session, MessageStored(stored))
        return await self._reopened(opened)

    async def _written(self, model: SizedModel | None, whose: PrincipalId, what: Cut, limit: int) -> NewSummary:
        ids = [row.id for row in what.covered]
        forgotten = await self.engine.database.read(lambda conn: memories.forgotten(conn, whose, ids))
        said = await asyncio.to_thread(what.without, *forgotten)
        reply = None if model is None else await self._asked(model, said, limit)
        sections = None if reply is None else read_summary(reply.text)
        if sections is None:
            return NewSummary(what, await asyncio.to_thread(without_model, said, limit), (), limit, reply)
        return NewSummary(what, sections, lasting_facts(sections), limit, reply)

    async def _asked(self, model: SizedModel, what: Cut, limit: int) -> Reply | None:
        """The reply of the model; None without one."""
        prompt = await asyncio.to_thread(summary_prompt, what, max(model.prompt_budget(), MIN_PROMPT_TOKENS), limit)
        try:
            return await reply_of(model, prompt)
        except (OutOfBudget, RunLost):
            raise
        except ModelsExhausted as exc:
            log.warning("summary.no_model", attempts=len(exc.attempts))
        except Exception:
            log.exception("summary.failed")
        return None

    async def _store(self, tx: Connection, run: Claim, session: SessionId, summary: NewSummary) -> MessageId | None:
        """Store the facts and the summary, which hides their sources, and close the journal, in one transaction."""
        what = summary.what
        await sessions.lock_for(tx, session, run)
        if summary.reply is not None:
            await steps.model_called(tx, run, summary.reply)
        if await messages.newest_summary(tx, session) != (what.previous.id if what.previous else None):
            return None
        label = await sessions.label(tx, session)
        # The facts of a branch's parent are remembered there.
        facts = summary.facts if any(row.session_id == session for row in what.covered) else ()
        new = partial(NewMemory, label=label, origin="compaction", session=session)
        if not await addresses.is_temporary(tx, session):
            await remember(tx, run.principal_id, new, summary.sections, facts, what)
        text = Summary(written_summary(summary.sections, summary.limit))
        row = await messages.say(tx, session, run.principal_id, text, label=label, task=run.id, covers=what.last)
        await journals.close(tx, session, goal_of(summary.sections))
        return row.id

    async def _reopened(self, opened: OpenedTurn) -> OpenedTurn:
        """Open the turn again; messages that arrived meanwhile join it."""
        settled = RunLost("the messages of this run need no answer any more")
        again = required(await self.engine.database.run(opened.opening.open), settled)
        joined = tuple(id for id in again.asked_ids if id not in opened.asked_ids)
        if joined:
            self.engine.live.publish(again.session, TurnStarted(joined, opened.run))
        return again

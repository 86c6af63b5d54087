"""The turn runner: from an opened turn to its result, and the transaction that ends a run of any kind."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import structlog

from gateway.agent.limits import TREE_USD, Limits
from gateway.agent.loop import NO_REPEATS, RepeatApprovals
from gateway.agent.memory.search import MemoryQuery
from gateway.config.failpoints import Step
from gateway.domain.conversation.model import ModelsExhausted, PromptPart, Reply
from gateway.domain.conversation.transcript import Answered, AssistantText, ModelReplied, Notice
from gateway.domain.ids import MessageId
from gateway.domain.principals import Label, Role
from gateway.domain.work.tasks import Status, TurnResult
from gateway.flow.approvals import Questions
from gateway.flow.engine import Engine
from gateway.flow.files.sync import FileSync
from gateway.flow.labels import ask_to_vouch
from gateway.flow.live import MessageStored, TurnEnded
from gateway.flow.outbound.proactive import ProactiveMessages
from gateway.flow.turn.budgets import BudgetedModel, OutOfBudget, SharedBudgets
from gateway.flow.turn.compaction import Compactor
from gateway.flow.turn.environment import AgentEnvironments
from gateway.flow.turn.loop import SizedModel, Turn, TurnLoop
from gateway.flow.turn.memory import TurnMemory
from gateway.flow.turn.opening import OpenedChat, OpenedTurn, raise_label
from gateway.flow.turn.steps import Fence, LiveSink, Sink, StepSink
from gateway.store.connection.pool import Connection
from gateway.store.delivery.addresses import AddressRow
from gateway.store.delivery.outbox import OutboxPart
from gateway.store.transcript import messages, sessions
from gateway.store.transcript.messages import MessageRow
from gateway.store.work import steps, tasks

AFTER_OVERFLOW = 0.6
"""The share of a prompt that was too long for its model that the next one may have."""
NO_MODEL = "No model could answer. Wait a little and try again; if it keeps happening, tell the owner."
"""For everybody but the owner: texts of providers may be about the owner's accounts."""

log = structlog.get_logger(__name__)


@dataclass
class TurnRunner:
    """Runs turns. One for all runs: they share one count of the spending."""

    engine: Engine
    models: Callable[[], SizedModel]
    limits: Callable[[], Limits]
    budgets: SharedBudgets
    environments: AgentEnvironments
    compactor: Compactor

    def __post_init__(self) -> None:
        self._memory = TurnMemory(self.engine.database, self.environments.toolkit.embedder)

    async def begin(self, opened: OpenedTurn) -> Turn:
        """Build the turn's environment, once, while its question is embedded; raises `RunLost`."""
        question = asyncio.create_task(self._memory.question(opened), name="question")
        try:
            return await self._begin(opened, question)
        finally:
            question.cancel()

    async def _begin(self, opened: OpenedTurn, question: Awaitable[MemoryQuery]) -> Turn:
        environment = await self.environments.for_turn(opened)
        *files, beat = await environment.persona_parts()
        used = [*files, *([beat] if opened.heartbeat else []), *(opened.agent.parts if opened.agent else ())]
        opened, skills = await self._vouched(opened, used), await environment.skill_index()
        fence = Fence(self.engine.database, opened.run)
        return Turn(opened, environment, (*files, beat), skills, fence, await question)

    async def answer(
        self,
        turn: Turn,
        sinks: Sequence[Sink] = (),
        model: SizedModel | None = None,
        allowed: RepeatApprovals = NO_REPEATS,
    ) -> TurnResult:
        """The answer. Without any budget left no model is called; a prompt too long for its provider is shortened once.

        `model` replaces the configured one; `allowed` are calls left by a crash that run again. Each step is stored
        before the next, and its costs are counted. Raises `RunLost`.
        """
        turn = replace(turn, opened=await self._memory.reminded(turn.opened, turn.question, turn.environment.zone()))
        opened, budget, limits = turn.opened, None, self.limits()
        if opened.agent is not None and opened.agent.usd is not None:
            limits = replace(limits, usd=opened.agent.usd)
        tree = opened.agent is not None
        budgeted = BudgetedModel(model or self.models(), self.budgets, opened.run, opened.principal.role, tree=tree)
        stored = StepSink(turn.fence, opened.session, opened.label, self.engine.failpoints)
        sinks = (stored, LiveSink(self.engine.live, opened.session), *sinks)
        while True:
            try:
                loop = await self._prepared(TurnLoop(self.engine, turn, budgeted, limits, budget, allowed))
                stored.label = max(stored.label, loop.opened.label)
                result = await self._follow(loop, sinks)
                return replace(result, label=stored.label, reminded=loop.opened.reminder.recalled.memories)
            except OutOfBudget as exc:
                return replace(_out_of_budget(exc), label=stored.label)
            except ModelsExhausted as exc:
                if not exc.overflow or budget is not None:
                    log.warning("turn.no_model", attempts=len(exc.attempts))
                    words = str(exc) if opened.principal.role is Role.OWNER else NO_MODEL
                    error, label = "no model answered", stored.label
                    return TurnResult(Notice(words), status=Status.FAILED, error=error, problem=exc, label=label)
            turn, budget = loop.turn, int(loop.prompted * AFTER_OVERFLOW)
            log.warning("turn.too_long", tokens=loop.prompted)

    async def _vouched(self, opened: OpenedTurn, parts: Sequence[PromptPart]) -> OpenedTurn:
        """The turn with the label of its agent's file; whose the files are that are trusted less than it is asked once.

        The agent's own prompt is needed. Of the others, those that stay above the turn's label are left out.
        """
        label = max(opened.label, opened.agent.label if opened.agent else Label.OWNER)
        doubtful = [part for part in parts if part.sha256 and part.label > opened.label]
        if label == opened.label and not doubtful:
            return opened
        owner, own = self.engine.people.owner.id, opened.principal.id
        asked = {owner if part.shared else own: dict[str, str]() for part in doubtful}
        for part in doubtful:
            asked[owner if part.shared else own][part.path] = part.sha256

        async def work(tx: Connection) -> None:
            await raise_label(tx, opened.run, opened.session, label)
            for whose, files in asked.items():
                await ask_to_vouch(tx, whose, files, self.engine.clock)

        await self.engine.database.run(work)
        if doubtful:
            log.info("turn.left_out", files=[part.path for part in doubtful])
        return replace(opened, label=label)

    async def _prepared(self, loop: TurnLoop) -> TurnLoop:
        """Compacted if it is too long, and always when a provider said so, in which case it has a budget."""
        opened, overflow = loop.opened, loop.budget is not None
        if not overflow and loop.limits.stop(opened.spent):
            return loop
        ready = await self.compactor.prepare(opened, loop.room, self.budgets, overflow=overflow)
        if ready is opened:
            return loop
        turn = loop.turn
        reminded = await self._memory.reminded(ready, turn.question, turn.environment.zone())
        return replace(loop, turn=replace(turn, opened=reminded))

    async def _follow(self, loop: TurnLoop, sinks: Sequence[Sink]) -> TurnResult:
        """Run the loop, each event through all sinks before the next one; raises `ModelsExhausted`."""
        reply: Reply | None = None
        async with aclosing(loop.events()) as events:
            async for event in events:
                for sink in sinks:
                    await sink.take(event)
                match event:
                    case ModelReplied(last, intents):
                        reply = None if intents else last
                    case Answered(text, limit):
                        return TurnResult(AssistantText(text), reply, limit=limit)
                    case _:
                        pass
        raise RuntimeError("the loop ended without an answer")


def _out_of_budget(exc: OutOfBudget) -> TurnResult:
    """A notice if no model was called. A tree's budget is asked about instead."""
    if exc.first and exc.stop.limit != TREE_USD:
        return TurnResult(Notice(exc.stop.text), status=Status.FAILED, error="out of budget")
    return TurnResult(AssistantText(exc.stop.text), limit=exc.stop.limit)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """How a run ended: the status of its task (None: back to the queue), and why it failed.

    `sent` is its message in another chat than its own.
    """

    status: Status | None
    error: str | None = None
    sent: MessageRow | None = None
    result: str | None = None
    """For the task above it."""


Destination: TypeAlias = Callable[[Connection], Awaitable[AddressRow | None]]
"""Finds and locks the chat, not the run's own, that gets its result; None: there is none."""
StoreOutcome: TypeAlias = Callable[[Connection, MessageRow, AddressRow | None], Awaitable[RunOutcome]]
"""Stores the consequences of the answer, in the same transaction; gets the answer and the destination."""


@dataclass(frozen=True, slots=True)
class RunFinisher:
    """Ends runs of every kind. Chats are locked first, then the run's own session, then its task."""

    engine: Engine
    proactive: ProactiveMessages

    async def finish(
        self, opened: OpenedTurn, result: TurnResult, store: StoreOutcome, destination: Destination | None = None
    ) -> RunOutcome:
        """Store the end; raises `RunLost`, with nothing stored."""
        run = opened.run

        async def work(tx: Connection) -> tuple[MessageRow, RunOutcome]:
            to = await destination(tx) if destination else None
            label = await sessions.lock_for(tx, opened.session, run, above=True)
            answer = await _store(tx, opened, result, label)
            finished = await store(tx, answer, to)
            if finished.status is None:
                await tasks.renew(tx, run)
            else:
                said, error = finished.sent.id if finished.sent else None, finished.error
                await tasks.finish(tx, run, finished.status, error=error, said=said, result=finished.result)
            return answer, finished

        answer, finished = await self.engine.database.run(work)
        self.ended(opened, answer.id, finished.status)
        if finished.sent is not None:
            self.proactive.committed(finished.sent)
        return finished

    async def answer(self, opened: OpenedChat, result: TurnResult, parts: Sequence[OutboxPart]) -> bool:
        """End the run of a chat in one statement; False if it has to `finish` the longer way. Raises `RunLost`."""
        at, session = opened.at.id, opened.session
        answer = partial(tasks.answer, run=opened.run, session=session, result=result, address=at, parts=parts)
        stored = await self.engine.database.run_alone(answer)
        if stored is not None:
            self.ended(opened, stored, result.status)
        return stored is not None

    def ended(self, opened: OpenedTurn, answer: MessageId, status: Status | None) -> None:
        """Tell everybody about a committed end."""
        run, live = opened.run, self.engine.live
        self.engine.failpoints.reach(Step.ANSWER_COMMITTED)
        says = status.value if status else "goes on"
        log.info("run.finished", kind=run.kind, task_id=str(run.id), message_id=answer, status=says)
        live.publish(opened.session, MessageStored(answer))
        live.publish(opened.session, TurnEnded(run))  # at once, else the answer is shown beside its draft
        self.engine.signals.outbox.set()


async def _store(tx: Connection, opened: OpenedTurn, result: TurnResult, label: Label) -> MessageRow:
    """Add the result to the session, which is locked, as the answer to its open messages; record the costs."""
    run, address = opened.run, opened.at.id if opened.at else None
    say = partial(messages.say, tx, opened.session, run.principal_id, result.entry, label=label, origin=result.origin)
    answer = await say(address=address, task=run.id, answers=True, remembered=result.reminded)
    if result.reply is not None:
        await steps.model_called(tx, run, result.reply, answer.id)
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """The parts that run turns of the agent."""

    environments: AgentEnvironments
    runner: TurnRunner
    finisher: RunFinisher
    questions: Questions
    file_sync: FileSync

"""Turns: from the messages a session has unread to the answer that is committed for them."""

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from gateway.agent.limits import Limits
from gateway.config.failpoints import Failpoints, Step
from gateway.domain import digest
from gateway.domain.clock import Clock
from gateway.domain.errors import DatabaseDown
from gateway.domain.events import Answered, ModelReplied
from gateway.domain.model import ModelsExhausted, Reply
from gateway.domain.principals import Role
from gateway.domain.tasks import Claim, Status
from gateway.domain.transcript import AssistantText, Notice
from gateway.flow.budgets import Budgets
from gateway.flow.compacting import Compacting
from gateway.flow.conversation import Conversation, SizedModel
from gateway.flow.homes import Homes
from gateway.flow.live import Live, MessageStored, TurnEnded, TurnStarted
from gateway.flow.long_answers import Abridged, abridged
from gateway.flow.opening import Opened, open_turn
from gateway.flow.outages import Outages
from gateway.flow.outbound import Outbound
from gateway.flow.sinks import DraftSink, LiveSink, Sink, StepSink, seen, typing
from gateway.store import messages, sessions, steps, tasks, unread
from gateway.store.messages import MessageRow
from gateway.store.pool import Connection, Database

AFTER_OVERFLOW = 0.6
"""What of a prompt that was too long for its model the next one may have."""
NO_MODEL = "No model could answer. Wait a little and write again; if it goes on, tell the owner."
"""For everybody else: what providers say may be about the owner's accounts."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Said:
    """How a turn ends: with the agent's answer, or with the gateway's word that there is none."""

    entry: AssistantText | Notice
    reply: Reply | None = None
    status: Status = Status.COMPLETED
    error: str | None = None


class Turns:
    """The runner of `chat` tasks."""

    def __init__(
        self,
        database: Database,
        models: Callable[[], SizedModel],
        limits: Callable[[], Limits],
        homes: Homes,
        outbound: Outbound,
        live: Live,
        clock: Clock,
        failpoints: Failpoints,
        compacting: Compacting,
        outages: Outages,
    ) -> None:
        self._database = database
        self._models = models
        self._budgets = Budgets(database, limits, clock)
        self._homes = homes
        self._outbound = outbound
        self._live = live
        self._clock = clock
        self._failpoints = failpoints
        self._compacting = compacting
        self._outages = outages

    async def run(self, run: Claim) -> None:
        """Answer what is unread in the session; raises `RunLost` when the run was cancelled or taken over."""
        self._failpoints.reach(Step.TURN_CLAIMED)
        opened = await self._database.run(lambda tx: open_turn(tx, run))
        if opened is None:
            return
        self._failpoints.reach(Step.TURN_TAKEN)
        self._live.publish(opened.session, TurnStarted(opened.asked_ids, opened.at.address))
        channel = self._outbound.channel(opened.at)
        try:
            async with seen(channel, opened.at, opened.asked):
                async with typing(channel, opened.at):
                    said = await self._converse(run, opened)
                self._failpoints.reach(Step.ANSWER_READY)
                await self._commit(run, opened, said)
        except DatabaseDown:
            self._outages.note(opened.at.address, private=opened.at.private)
            raise
        finally:
            self._live.publish(opened.session, TurnEnded())

    async def give_up(self, run: Claim) -> None:
        """Out of attempts: one message says so, and the next one starts afresh."""
        opened = await self._database.run(lambda tx: open_turn(tx, run))
        if opened is not None:
            text = f"I could not answer: {run.max_attempts} attempts failed. Write again and I start afresh."
            async with seen(self._outbound.channel(opened.at), opened.at, opened.asked):
                await self._commit(run, opened, Said(Notice(text), status=Status.FAILED, error="out of attempts"))

    async def _converse(self, run: Claim, opened: Opened) -> Said:
        """The answer; without money no model is asked. A prompt too long for its provider is shortened once."""
        allowed = await self._budgets.allow(opened.principal.role)
        if allowed.refusal is not None:
            return Said(Notice(allowed.refusal), status=Status.FAILED, error="out of budget")
        sinks, budget = self._sinks(run, opened), None
        while True:
            conversation = await self._prepared(run, opened, allowed.limits, budget)
            try:
                return await self._follow(conversation, sinks)
            except ModelsExhausted as exc:
                if not exc.overflow or budget is not None:
                    log.warning("turn.no_model", attempts=len(exc.attempts))
                    words = str(exc) if opened.principal.role is Role.OWNER else NO_MODEL
                    return Said(Notice(words), status=Status.FAILED, error="no model answered")
            budget = int(conversation.prompted * AFTER_OVERFLOW)
            log.warning("turn.too_long", tokens=conversation.prompted)

    async def _prepared(self, run: Claim, opened: Opened, limits: Limits, budget: int | None) -> Conversation:
        """Compacted if it has grown too long, and in any case when `budget` says that a provider found it too long."""
        conversation = self._conversation(run, opened, limits, budget)
        if budget is None and limits.stop(opened.spent):
            return conversation
        ready = await self._compacting.prepare(
            run, opened, conversation.room, self._budgets, overflow=budget is not None
        )
        return conversation if ready is opened else self._conversation(run, ready, limits, budget)

    def _conversation(self, run: Claim, opened: Opened, limits: Limits, budget: int | None = None) -> Conversation:
        home = self._homes.of(run.principal_id)
        return Conversation(self._database, self._live, run, opened, home, self._models(), limits, budget)

    async def _follow(self, conversation: Conversation, sinks: Sequence[Sink]) -> Said:
        """The loop, each event in its sinks before the next one is made; raises `ModelsExhausted`."""
        reply: Reply | None = None
        async with aclosing(conversation.events()) as events:
            async for event in events:
                for sink in sinks:
                    await sink.take(event)
                match event:
                    case ModelReplied(last, intents):
                        reply = None if intents else last
                    case Answered(text):
                        return Said(AssistantText(text), reply)
                    case _:
                        pass
        raise RuntimeError("the loop ended without an answer")

    def _sinks(self, run: Claim, opened: Opened) -> tuple[Sink, ...]:
        stored = StepSink(self._database, run, opened.session, opened.label, self._failpoints)
        live = LiveSink(self._live, opened.session)
        channel = self._outbound.channel(opened.at)
        if channel is None or not channel.capabilities.drafts_at(opened.at.address, private=opened.at.private):
            return stored, live, self._budgets
        return stored, live, self._budgets, DraftSink(channel, opened.at, opened.asked[-1].id, self._clock)

    async def _commit(self, run: Claim, opened: Opened, said: Said) -> None:
        channel, home = self._outbound.channel(opened.at), self._homes.of(run.principal_id)
        sent = await abridged(said.entry.text, channel, home.workspace, self._clock.now())
        stored, more = await self._database.run(lambda tx: self._store(tx, run, opened, said, sent))
        self._failpoints.reach(Step.ANSWER_COMMITTED)
        log.info("turn.answered", task_id=str(run.id), message_id=stored.id, status=said.status.value, more=more)
        self._live.publish(opened.session, MessageStored(stored.id))
        self._outages.over()
        self._outbound.wake()

    async def _store(
        self, tx: Connection, run: Claim, opened: Opened, said: Said, sent: Abridged
    ) -> tuple[MessageRow, bool]:
        """One transaction: the answer, its outbox rows, which messages it answers, the task's new status."""
        session = opened.session
        await sessions.lock(tx, session)
        await tasks.hold(tx, run)
        answer = await messages.say(
            tx,
            session,
            run.principal_id,
            said.entry,
            label=opened.label,
            origin="agent" if isinstance(said.entry, AssistantText) else "gateway",
            address=opened.at.id,
            task=run.id,
        )
        await messages.answer(tx, session, answer.id)
        if said.reply is not None:
            await steps.model_called(tx, run.id, run.principal_id, said.reply)
        if opened.solo:
            await self._remember(tx, opened, said)
        files, asked = await sent.keep(tx, run.principal_id, opened.label), opened.asked[-1].platform_id
        await self._outbound.put(tx, opened.at, answer.id, sent.text, files=files, reply_to=asked)
        more = await unread.left(tx, session)
        if more:
            await tasks.renew(tx, run)
        else:
            await tasks.finish(tx, run, said.status, error=said.error)
        return answer, more

    async def _remember(self, tx: Connection, opened: Opened, said: Said) -> None:
        """Keep the digest by which a client that sends the whole conversation finds this session again."""
        heard = await sessions.digest(tx, opened.session)
        for row in opened.asked:
            heard = digest.extend(heard, "user", row.text)
        if isinstance(said.entry, AssistantText):
            texts = await messages.said_since(tx, opened.session, opened.asked[0].seq or 0)
            await sessions.set_digest(tx, opened.session, digest.extend(heard, "assistant", digest.spoken(texts)))

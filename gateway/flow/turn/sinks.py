"""Sinks: what a turn emits becomes rows, a live view and a draft."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol, assert_never

import structlog

from gateway.config.failpoints import Failpoints, Step
from gateway.domain.channel import Channel
from gateway.domain.clock import Clock
from gateway.domain.events import Answered, ModelReplied, Steered, ToolFinished, TurnEvent
from gateway.domain.ids import SessionId
from gateway.domain.model import Restarted, TextDelta
from gateway.domain.principals import Label
from gateway.domain.tasks import Claim
from gateway.domain.transcript import AssistantText
from gateway.flow.live import Live, TextDropped, TextWritten, ToolEnded, ToolStarted
from gateway.store import sessions, steps, tasks
from gateway.store.addresses import AddressRow
from gateway.store.pool import Connection, Database
from gateway.store.transcript import messages
from gateway.store.transcript.messages import MessageRow

DRAFT_AFTER = 0.8
DRAFT_EVERY = 1.0
TYPING_EVERY = 4.0
TYPING_AT_MOST = 120.0
MARKED_AT_MOST = 10
"""Messages of one turn; more marks would say no more."""
MARK_WITHIN = 5.0

log = structlog.get_logger(__name__)


class Sink(Protocol):
    """Takes every event of a turn, in order, before the next one is made."""

    async def take(self, event: TurnEvent) -> None:
        """Do with it what this sink is for."""
        ...


class StepSink:
    """Commits each step of a run under its fence, before the loop goes on."""

    def __init__(
        self, database: Database, run: Claim, session: SessionId, label: Label, failpoints: Failpoints
    ) -> None:
        self._database = database
        self._run = run
        self._session = session
        self._label = label
        self._failpoints = failpoints

    async def take(self, event: TurnEvent) -> None:
        """Raises `RunLost` when the run no longer owns its task."""
        match event:
            case ModelReplied():
                self._failpoints.reach(Step.MODEL_REPLIED)
                if event.intents:
                    await self._commit(lambda tx: self._store_step(tx, event))
                    self._failpoints.reach(Step.STEP_COMMITTED)
            case ToolFinished():
                self._failpoints.reach(Step.TOOL_RAN)
                await self._commit(lambda tx: self._store_result(tx, event))
                self._failpoints.reach(Step.RESULT_COMMITTED)
            case TextDelta() | Restarted() | Steered() | Answered():
                pass
            case _:
                assert_never(event)

    async def _commit(self, write: Callable[[Connection], Awaitable[None]]) -> None:
        async def work(tx: Connection) -> None:
            await sessions.lock(tx, self._session)
            await tasks.progress(tx, self._run)
            await write(tx)

        await self._database.run(work)

    async def _store_step(self, tx: Connection, event: ModelReplied) -> None:
        run = self._run
        if event.reply.text:
            interim = AssistantText(event.reply.text, final=False)
            await messages.say(
                tx, self._session, run.principal_id, interim, label=self._label, origin="agent", task=run.id
            )
        await messages.intend(tx, self._session, run.principal_id, run.id, event.intents, self._label)
        await steps.model_called(tx, run.id, run.principal_id, event.reply)

    async def _store_result(self, tx: Connection, event: ToolFinished) -> None:
        run = self._run
        await messages.conclude(tx, self._session, run.principal_id, run.id, event.intent, event.result, self._label)
        await steps.tool_ran(tx, run.id, run.principal_id, event.intent.call.name, event.duration_ms)


class LiveSink:
    """Publishes a turn to whoever watches the session."""

    def __init__(self, live: Live, session: SessionId) -> None:
        self._live = live
        self._session = session

    async def take(self, event: TurnEvent) -> None:
        """Never blocks."""
        match event:
            case TextDelta(text):
                self._live.publish(self._session, TextWritten(text))
            case Restarted():
                self._live.publish(self._session, TextDropped())
            case ModelReplied(_, intents):
                for intent in intents:
                    call = intent.call
                    self._live.publish(self._session, ToolStarted(call.id, call.name, call.arguments))
            case ToolFinished(intent, result, failed, duration_ms):
                self._live.publish(self._session, ToolEnded(intent.call.id, result.text, failed, duration_ms))
            case Steered() | Answered():
                pass
            case _:
                assert_never(event)


class DraftSink:
    """Shows the unfinished answer in a private chat, as often as a platform bears."""

    def __init__(self, channel: Channel, at: AddressRow, draft: int, clock: Clock) -> None:
        self._channel = channel
        self._at = at
        self._draft = draft
        self._clock = clock
        self._text = ""
        self._next = clock.monotonic() + DRAFT_AFTER

    async def take(self, event: TurnEvent) -> None:
        """Best effort: a draft that cannot be shown is skipped."""
        match event:
            case TextDelta(text):
                self._text += text
                now = self._clock.monotonic()
                if now >= self._next:
                    self._next = now + DRAFT_EVERY
                    await _shown(self._channel.draft(self._at.address, self._draft, self._text))
            case Restarted() | ModelReplied():
                self._text = ""
            case ToolFinished() | Steered() | Answered():
                pass
            case _:
                assert_never(event)


@asynccontextmanager
async def typing(channel: Channel | None, at: AddressRow) -> AsyncIterator[None]:
    """Show that an answer is being written, every 4 s and for 2 minutes at most."""
    if channel is None or not channel.capabilities.typing:
        yield
        return
    shown = asyncio.create_task(_keep_typing(channel, at), name=f"typing {at.id}")
    try:
        yield
    finally:
        shown.cancel()
        await asyncio.wait([shown])


@asynccontextmanager
async def seen_reaction(channel: Channel | None, at: AddressRow, asked: Sequence[MessageRow]) -> AsyncIterator[None]:
    """Where a platform has marks, mark what is being answered, and take the marks back: also those of a dead run."""
    if channel is None or not channel.capabilities.reactions:
        yield
        return
    ids = [row.platform_id for row in asked if row.address_id == at.id and row.platform_id][-MARKED_AT_MOST:]
    marking = asyncio.create_task(_mark(channel, at, ids, seen=True), name=f"marking {at.id}")
    try:
        yield
    finally:
        await asyncio.wait([marking])
        await _mark(channel, at, ids, seen=False)


async def _mark(channel: Channel, at: AddressRow, ids: Sequence[str], *, seen: bool) -> None:
    """For 5 s at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(MARK_WITHIN):
            for id in ids:
                await _shown(channel.react(at.address, id, seen=seen))


async def _keep_typing(channel: Channel, at: AddressRow) -> None:
    for _ in range(int(TYPING_AT_MOST / TYPING_EVERY)):
        await _shown(channel.typing(at.address))
        await asyncio.sleep(TYPING_EVERY)


async def _shown(showing: Awaitable[None]) -> None:
    """Best effort: a channel that breaks over it costs no answer."""
    try:
        await showing
    except Exception:
        log.exception("channel.broken")

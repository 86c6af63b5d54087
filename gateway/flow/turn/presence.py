"""Presence: a chat shows typing, drafts and marks while its answer is written. None of it delays the answer."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import assert_never

import structlog

from gateway.beside import at_most, beside
from gateway.domain.channels.channel import Channel
from gateway.domain.conversation.model import Restarted, TextDelta, ThinkingDelta, Waiting
from gateway.domain.conversation.transcript import Answered, ModelReplied, Steered, ToolFinished, TurnEvent
from gateway.domain.text.texts import GrowingText
from gateway.domain.time import Clock
from gateway.flow.turn.steps import Sink
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript.messages import MessageRow

DRAFT_AFTER = 0.8
DRAFT_EVERY, DRAFT_RARELY = 1.0, 30.0
"""Seconds between two drafts, and the most after failures."""
TYPING_EVERY = 4.0
TYPING_AT_MOST = 120.0
MARKED_AT_MOST = 10
"""Most marked messages of one turn."""
MARK_WITHIN = 5.0
STOP_WITHIN = 1.0
"""Seconds that the end of a turn waits for a draft on its way."""

log = structlog.get_logger(__name__)


class DraftSink:
    """Collects the unfinished answer; `draw` shows its newest text."""

    def __init__(self, channel: Channel, at: AddressRow, draft: int, clock: Clock) -> None:
        self._channel = channel
        self._at = at
        self._draft = draft
        self._clock = clock
        self._text = GrowingText()
        self._changed = asyncio.Event()
        self.busy = asyncio.Lock()
        """Held while a draft is on its way."""

    async def take(self, event: TurnEvent) -> None:
        """Take an event; never waits."""
        match event:
            case TextDelta(text):
                self._text.add(text)
                self._changed.set()
            case Restarted() | ModelReplied():
                self._text = GrowingText()
                self._changed.clear()
            case ThinkingDelta() | Waiting() | ToolFinished() | Steered() | Answered():
                pass
            case _:
                assert_never(event)

    async def draw(self) -> None:
        """Show drafts until cancelled, less often after failures."""
        rest = DRAFT_EVERY
        await self._clock.sleep(DRAFT_AFTER)
        while True:
            await self._changed.wait()
            self._changed.clear()
            async with self.busy:
                shown = await _tried(self._channel.draft(self._at.address, self._draft, str(self._text)))
            rest = DRAFT_EVERY if shown else min(2 * rest, DRAFT_RARELY)
            await self._clock.sleep(rest)


@asynccontextmanager
async def drafts(channel: Channel | None, at: AddressRow, draft: int, clock: Clock) -> AsyncIterator[tuple[Sink, ...]]:
    """The sink of drafts, if the chat can show them; no draft is sent after the block."""
    if channel is None or not channel.capabilities.drafts_at(at.address, private=at.private):
        yield ()
        return
    sink = DraftSink(channel, at, draft, clock)
    async with beside(sink.draw(), f"draft {at.id}", STOP_WITHIN):
        yield (sink,)
        async with at_most(STOP_WITHIN), sink.busy:
            pass


def typing(channel: Channel | None, at: AddressRow) -> AbstractAsyncContextManager[object]:
    """Show that an answer is being written, every 4 s and for 2 minutes at most."""
    if channel is None or not channel.capabilities.typing:
        return nullcontext()
    return beside(_keep_typing(channel, at), f"typing {at.id}", STOP_WITHIN)


@asynccontextmanager
async def seen_reaction(channel: Channel | None, at: AddressRow, asked: Sequence[MessageRow]) -> AsyncIterator[None]:
    """Mark the messages that are being answered, if the platform has marks, and remove the marks after the block."""
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
    """Set or remove marks, for 5 s at most."""
    async with at_most(MARK_WITHIN):
        for id in ids:
            await _tried(channel.react(at.address, id, seen=seen))


async def _keep_typing(channel: Channel, at: AddressRow) -> None:
    for _ in range(int(TYPING_AT_MOST / TYPING_EVERY)):
        await _tried(channel.typing(at.address))
        await asyncio.sleep(TYPING_EVERY)


async def _tried(showing: Awaitable[bool | None]) -> bool:
    """Whether it is shown, as far as the channel knows; an error is logged."""
    try:
        return await showing is not False
    except Exception:
        log.exception("channel.broken")
        return False

"""Presence: what a chat shows while its answer is being written. Nothing of it holds the answer up."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import assert_never

import structlog

from gateway.domain.channels.channel import Channel
from gateway.domain.conversation.model import Restarted, TextDelta, Waiting
from gateway.domain.conversation.transcript import Answered, ModelReplied, Steered, ToolFinished, TurnEvent
from gateway.domain.text.texts import GrowingText
from gateway.domain.time import Clock
from gateway.flow.turn.steps import Sink
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript.messages import MessageRow

DRAFT_AFTER = 0.8
DRAFT_EVERY, DRAFT_RARELY = 1.0, 30.0
"""Seconds between two drafts, and at most after failures."""
TYPING_EVERY = 4.0
TYPING_AT_MOST = 120.0
MARKED_AT_MOST = 10
"""Messages of one turn; more marks would say no more."""
MARK_WITHIN = 5.0
STOP_WITHIN = 1.0
"""Seconds that the end of a turn waits for what is being shown."""

log = structlog.get_logger(__name__)


class DraftSink:
    """Notes the unfinished answer as it grows; `draw` shows the newest text, however fast that changes."""

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
        """Never waits."""
        match event:
            case TextDelta(text):
                self._text.add(text)
                self._changed.set()
            case Restarted() | ModelReplied():
                self._text = GrowingText()
                self._changed.clear()
            case Waiting() | ToolFinished() | Steered() | Answered():
                pass
            case _:
                assert_never(event)

    async def draw(self) -> None:
        """Until cancelled; the more often drafts fail in a row, the more rarely one is tried."""
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
    """The sink that shows the unfinished answer, where the chat can show one; after this no draft is shown."""
    if channel is None or not channel.capabilities.drafts_at(at.address, private=at.private):
        yield ()
        return
    sink = DraftSink(channel, at, draft, clock)
    drawing = asyncio.create_task(sink.draw(), name=f"draft {at.id}")
    try:
        yield (sink,)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_WITHIN), sink.busy:
                pass
    finally:
        await _stop(drawing)


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
        await _stop(shown)


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
                await _tried(channel.react(at.address, id, seen=seen))


async def _keep_typing(channel: Channel, at: AddressRow) -> None:
    for _ in range(int(TYPING_AT_MOST / TYPING_EVERY)):
        await _tried(channel.typing(at.address))
        await asyncio.sleep(TYPING_EVERY)


async def _tried(showing: Awaitable[bool | None]) -> bool:
    """Whether it is shown, as far as the channel says; one that breaks over it costs no answer."""
    try:
        return await showing is not False
    except Exception:
        log.exception("channel.broken")
        return False


async def _stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait([task], timeout=STOP_WITHIN)

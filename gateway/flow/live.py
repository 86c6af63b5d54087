"""Live events of sessions, in memory: turns publish them, screens and streams subscribe. The rows are canonical."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from cachetools import LRUCache

from gateway.domain.ids import MessageId, SessionId
from gateway.domain.text.texts import GrowingText
from gateway.domain.work.tasks import Claim

QUEUE = 1000
MAX_SESSIONS_REMEMBERED = 1_000


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn took these messages. Events until `TurnEnded`, or until another run starts a turn, answer them."""

    messages: tuple[MessageId, ...]
    run: Claim | None = None


@dataclass(frozen=True, slots=True)
class TextWritten:
    """More text of the running answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingWritten:
    """More of what the model thinks before its answer; never for messengers."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDropped:
    """The text and the thinking so far are void: the same prompt is tried again."""


@dataclass(frozen=True, slots=True)
class ModelAwaited:
    """No model is available for `seconds`; `model` failed last, `error` is the kind of its failure."""

    model: str
    error: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A call is running; `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolEnded:
    """A call has its result, as JSON text."""

    call_id: str
    text: str
    failed: bool
    duration_ms: int


@dataclass(frozen=True, slots=True)
class MessageStored:
    """A row of the transcript was committed: a message, an answer or a notice."""

    id: MessageId


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn is over, and its answer stored."""

    run: Claim | None = None


@dataclass(frozen=True, slots=True)
class SessionReplaced:
    """The conversation continues in another session (`/new`)."""

    session_id: SessionId


@dataclass(frozen=True, slots=True)
class Overrun:
    """The subscriber was too slow and missed events: read the rows again."""


LiveEvent: TypeAlias = (
    TurnStarted
    | TextWritten
    | ThinkingWritten
    | TextDropped
    | ModelAwaited
    | ToolStarted
    | ToolEnded
    | MessageStored
    | TurnEnded
    | SessionReplaced
    | Overrun
)


class Subscription:
    """An ordered stream of one session's events; a slow reader gets `Overrun` instead of a backlog."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[LiveEvent] = asyncio.Queue(QUEUE)

    def put(self, event: LiveEvent) -> None:
        """Add an event; never blocks, and the queue is bounded."""
        if self._queue.full():
            self.ready()
            event = Overrun()
        self._queue.put_nowait(event)

    async def get(self) -> LiveEvent:
        """The next event."""
        return await self._queue.get()

    def ready(self) -> list[LiveEvent]:
        """The events that are queued now."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]

    async def __aiter__(self) -> AsyncIterator[LiveEvent]:
        """Yield events forever."""
        while True:
            yield await self.get()


@dataclass(slots=True)
class _Running:
    """The turn of a session, and its text since the last tool call."""

    run: Claim | None
    written: GrowingText = field(default_factory=GrowingText)
    thought: GrowingText = field(default_factory=GrowingText)


class Live:
    """Distributes the events of a session to its subscribers."""

    def __init__(self) -> None:
        self._listeners: defaultdict[SessionId, set[Subscription]] = defaultdict(set)
        self._running: dict[SessionId, _Running] = {}
        self._followers: list[Callable[[SessionId], None]] = []
        self._newest: LRUCache[SessionId, MessageId] = LRUCache(MAX_SESSIONS_REMEMBERED)

    def listen(self, callback: Callable[[SessionId], None]) -> None:
        """Call `callback` for each session whose rows were committed; it must not block."""
        self._followers.append(callback)

    def publish(self, session: SessionId, event: LiveEvent) -> None:
        """Send the event to every subscriber. The end of a turn is dropped if it is over, or if another turn runs."""
        running = self._running.get(session)
        match event:
            case TurnStarted(_, run) if running is None or running.run != run:
                self._running[session] = _Running(run)
            case TextWritten(text) if running is not None:
                running.written.add(text)
            case ThinkingWritten(text) if running is not None:
                running.thought.add(text)
            case TextDropped() | ToolStarted() if running is not None:
                running.written, running.thought = GrowingText(), GrowingText()
            case TurnEnded(run):
                if running is None or running.run != run:
                    return
                del self._running[session]
            case MessageStored(id):
                self._newest[session] = max(id, self._newest.get(session, id))
            case _:
                pass
        for listener in tuple(self._listeners.get(session, ())):
            listener.put(event)
        if isinstance(event, MessageStored | ToolStarted | ToolEnded | TurnStarted | SessionReplaced):
            for follower in self._followers:
                follower(session)

    def newest(self, session: SessionId) -> MessageId | None:
        """The newest row that this process has stored in the session; None if it doesn't know."""
        return self._newest.get(session)

    def written(self, session: SessionId) -> str | None:
        """The unfinished text of the running turn; None if no turn runs in this process."""
        running = self._running.get(session)
        return str(running.written) if running else None

    def thought(self, session: SessionId) -> str:
        """The thinking of the running turn's model so far."""
        running = self._running.get(session)
        return str(running.thought) if running else ""

    @contextmanager
    def subscribe(self, session: SessionId) -> Iterator[Subscription]:
        """Subscribe. Read the stored rows after entering, so that no event is missed in between."""
        subscription = Subscription()
        self._listeners[session].add(subscription)
        try:
            yield subscription
        finally:
            self._listeners[session].discard(subscription)
            if not self._listeners[session]:
                del self._listeners[session]

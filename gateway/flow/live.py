"""What is being said right now: turns publish, screens and streams listen. In memory only; rows are the truth."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

from gateway.domain.ids import MessageId, SessionId
from gateway.domain.text.texts import GrowingText
from gateway.domain.work.tasks import Claim

QUEUE = 1000


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn took these messages; what follows until `TurnEnded`, or until another run starts one, answers them."""

    messages: tuple[MessageId, ...]
    run: Claim | None = None


@dataclass(frozen=True, slots=True)
class TextWritten:
    """More text of the running answer."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDropped:
    """The text written so far is void: the same prompt is tried again."""


@dataclass(frozen=True, slots=True)
class ModelAwaited:
    """No model can be asked for so many seconds; `model` failed last, `error` is the kind of its failure."""

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
    """A row of the transcript was committed: something said, an answer, a notice."""

    id: MessageId


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn is over; what it had to say is stored."""

    run: Claim | None = None


@dataclass(frozen=True, slots=True)
class SessionReplaced:
    """The conversation goes on in another session (`/new`)."""

    session_id: SessionId


@dataclass(frozen=True, slots=True)
class Overrun:
    """The listener was too slow and missed events: read the rows again."""


LiveEvent: TypeAlias = (
    TurnStarted
    | TextWritten
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
        """Never blocks and never grows."""
        if self._queue.full():
            self.ready()
            event = Overrun()
        self._queue.put_nowait(event)

    async def get(self) -> LiveEvent:
        """The next event."""
        return await self._queue.get()

    def ready(self) -> list[LiveEvent]:
        """Whatever is there already, without waiting."""
        return [self._queue.get_nowait() for _ in range(self._queue.qsize())]

    async def __aiter__(self) -> AsyncIterator[LiveEvent]:
        """Events for ever."""
        while True:
            yield await self.get()


@dataclass(slots=True)
class _Running:
    """The turn that a session is in, and what it has written since its last tool call."""

    run: Claim | None
    written: GrowingText = field(default_factory=GrowingText)


class Live:
    """Fan-out of turn events to the listeners of a session."""

    def __init__(self) -> None:
        self._listeners: defaultdict[SessionId, set[Subscription]] = defaultdict(set)
        self._running: dict[SessionId, _Running] = {}
        self._followers: list[Callable[[SessionId], None]] = []

    def listen(self, callback: Callable[[SessionId], None]) -> None:
        """From now on, tell `callback` of each session whose rows were committed; it must not block."""
        self._followers.append(callback)

    def publish(self, session: SessionId, event: LiveEvent) -> None:
        """Tell every listener of the session; the end of a turn that is over, or that another followed, is no news."""
        running = self._running.get(session)
        match event:
            case TurnStarted(_, run) if running is None or running.run != run:
                self._running[session] = _Running(run)
            case TextWritten(text) if running is not None:
                running.written.add(text)
            case TextDropped() | ToolStarted() if running is not None:
                running.written = GrowingText()
            case TurnEnded(run):
                if running is None or running.run != run:
                    return
                del self._running[session]
            case _:
                pass
        for listener in tuple(self._listeners.get(session, ())):
            listener.put(event)
        if isinstance(event, MessageStored | ToolStarted | ToolEnded | TurnStarted | SessionReplaced):
            for follower in self._followers:
                follower(session)

    def written(self, session: SessionId) -> str | None:
        """The unfinished text of the running turn; None when no turn runs here."""
        running = self._running.get(session)
        return str(running.written) if running else None

    @contextmanager
    def subscribe(self, session: SessionId) -> Iterator[Subscription]:
        """Listen from now on. Read the stored rows after entering, so that nothing falls in between."""
        subscription = Subscription()
        self._listeners[session].add(subscription)
        try:
            yield subscription
        finally:
            self._listeners[session].discard(subscription)
            if not self._listeners[session]:
                del self._listeners[session]

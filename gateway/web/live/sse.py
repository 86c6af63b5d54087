"""Server-sent events: encoding, replay after a reconnect, keep-alive; and the page patches that they carry.

Also boards: pages made of pieces. Each is read once for all its viewers, as long as there are any; changes are sent.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractContextManager, aclosing, suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Literal, NamedTuple, TypeAlias
from uuid import uuid4

from fastapi.sse import format_sse_event
from starlette.responses import StreamingResponse
from starlette.types import Send

from gateway.beside import cancel
from gateway.domain.errors import TryAgainLater
from gateway.domain.json import Json
from gateway.flow.signals import Wakeup

POLL_SECONDS = 1.0

Draw: TypeAlias = Callable[[], Awaitable[Mapping[str, str]]]
"""Renders the current pieces, in order, by element id; `empty` is always the first."""

PING_SECONDS = 15.0
MAX_FRAMES = 500


@dataclass(frozen=True, slots=True)
class Frame:
    """One event; a browser returns its `id` as Last-Event-ID."""

    data: str
    event: str | None = None
    id: str | None = None

    def encode(self) -> bytes:
        """The wire format."""
        return format_sse_event(data_str=self.data, event=self.event, id=self.id)


def to_json(value: Json) -> str:
    """Compact JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class ClosedStream(StreamingResponse):
    """Streams pieces, and closes their generator with the response, not when it is garbage-collected."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], media_type: str, headers: Mapping[str, str]) -> None:
        self._pieces = pieces
        super().__init__(pieces, media_type=media_type, headers=headers)

    async def stream_response(self, send: Send) -> None:
        """Send the pieces, then close them."""
        async with aclosing(self._pieces):
            await super().stream_response(send)


class EventStream(ClosedStream):
    """Streams frames until they end, the client disconnects or the event of `held` is set; keeps the line alive."""

    def __init__(
        self,
        frames: AsyncGenerator[Frame, None],
        held: AbstractContextManager[asyncio.Event],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        unbuffered = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(_with_keep_alive(frames, held), "text/event-stream", {**unbuffered, **(headers or {})})


async def _with_keep_alive(
    frames: AsyncGenerator[Frame, None], held: AbstractContextManager[asyncio.Event]
) -> AsyncGenerator[bytes, None]:
    with held as ended:
        end = asyncio.ensure_future(ended.wait())
        next_frame = asyncio.ensure_future(anext(frames, None))
        try:
            while True:
                await asyncio.wait({end, next_frame}, timeout=PING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if end.done():
                    return
                if not next_frame.done():
                    yield b": alive\n\n"
                    continue
                frame = next_frame.result()
                if frame is None:
                    return
                next_frame = asyncio.ensure_future(anext(frames, None))
                yield frame.encode()
        finally:
            await cancel(end, next_frame)
            await frames.aclose()


class Ring:
    """A buffer of the latest frames of one topic, for any number of viewers; one that fell behind gets everything."""

    def __init__(self, whole: Callable[[], str]) -> None:
        self._whole = whole
        self._boot = uuid4().hex[:12]
        self._seq = 0
        self._frames: deque[Frame] = deque(maxlen=MAX_FRAMES)
        self._published = asyncio.Event()
        self._ended = False
        self.viewers = 0

    def publish(self, data: str) -> None:
        """Send data to every viewer."""
        self._seq += 1
        self._frames.append(Frame(data, id=self._id()))
        self._wake()

    def end(self) -> None:
        """Disconnect the viewers; they reconnect to a new ring."""
        self._ended = True
        self._wake()

    async def follow(self, last_id: str | None) -> AsyncGenerator[Frame, None]:
        """Yield the frames after that id if it is still buffered, else the whole; then new frames."""
        at = self._position(last_id)
        self.viewers += 1
        try:
            while not self._ended:
                if at is None or at < self._seq - len(self._frames):
                    at = self._seq
                    yield Frame(self._whole(), id=self._id())
                elif at < self._seq:
                    at += 1
                    yield self._frames[at - self._seq - 1]
                else:
                    await self._published.wait()
        finally:
            self.viewers -= 1

    def _id(self) -> str:
        return f"{self._boot}:{self._seq}"

    def _position(self, last_id: str | None) -> int | None:
        boot, _, seq = (last_id or "").partition(":")
        return int(seq) if boot == self._boot and seq.isdecimal() and int(seq) <= self._seq else None

    def _wake(self) -> None:
        self._published.set()
        self._published = asyncio.Event()


class Patch(NamedTuple):
    """One step for `ui.js`: what to do, the id of the element, and the HTML.

    replace: replace the element; its id may change. insert: add a new one after it, or first if the id is empty.
    append: add content at its end. fill: set its content. running: `where` is not an id but whether an answer is being
    written.
    """

    what: Literal["replace", "insert", "remove", "append", "fill", "running"]
    where: str | bool
    html: str = ""


def difference(before: Mapping[str, str], after: Mapping[str, str]) -> list[Patch]:
    """The patches from one list (id → HTML, in order) to the other; applied in order, ids stay unique at every step."""
    old, new = list(before), list(after)
    removed: list[Patch] = []
    changed: list[Patch] = []
    for kind, i, i_end, j, j_end in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            changed += [Patch("replace", key, after[key]) for key in old[i:i_end] if before[key] != after[key]]
            continue
        for gone, come in zip_longest(old[i:i_end], new[j:j_end]):
            if gone is not None and come is not None and gone not in after and come not in before:
                changed.append(Patch("replace", gone, after[come]))
                continue
            if gone is not None:
                removed.append(Patch("remove", gone))
            if come is not None:
                changed.append(Patch("insert", new[new.index(come) - 1] if new.index(come) else "", after[come]))
    return [*removed, *changed]


class Boards:
    """The boards that have viewers, each by a key that names what it shows."""

    def __init__(self) -> None:
        self._open: dict[Hashable, _Board] = {}

    def wake(self) -> None:
        """Redraw the open boards now: something was changed."""
        for board in self._open.values():
            board.changed.set()

    async def follow(self, key: Hashable, draw: Draw) -> AsyncGenerator[Frame, None]:
        """Yield the whole board, then every change, without end; nothing while the database is unavailable."""
        board = self._open.setdefault(key, _Board(draw))
        board.viewers += 1
        shown, seen = dict[str, str](), 0
        try:
            while True:
                seen, pieces = await board.after(seen)
                if not shown and pieces:
                    yield Frame(to_json([Patch("fill", "board", "".join(pieces.values()))]))
                elif patches := difference(shown, pieces):
                    yield Frame(to_json(patches))
                shown = dict(pieces)
        finally:
            board.viewers -= 1
            if not board.viewers:
                del self._open[key]


class _Board:
    """The latest drawing of a board, and how many there were."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._pieces: Mapping[str, str] = {}
        self._drawings = 0
        self._one_at_a_time = asyncio.Lock()
        self.changed = Wakeup()
        self.viewers = 0

    async def after(self, seen: int) -> tuple[int, Mapping[str, str]]:
        """A later drawing than the one with the number `seen`; the first viewer to ask draws it for all."""
        if self._drawings == seen:
            async with self._one_at_a_time:
                if self._drawings == seen:
                    await self._redraw()
        return self._drawings, self._pieces

    async def _redraw(self) -> None:
        if self._drawings:
            await self.changed.wait(POLL_SECONDS)
        self.changed.clear()
        with suppress(TryAgainLater):
            self._pieces = await self._draw()
        self._drawings += 1

"""Boards: pages made of pieces. Each is read once for all its viewers, as long as there are any; changes are sent."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from typing import TypeAlias

from gateway.domain.errors import TryAgainLater
from gateway.flow.signals import Wakeup
from gateway.web.live.sse import Frame, Patch, difference, to_json

POLL_SECONDS = 1.0

Draw: TypeAlias = Callable[[], Awaitable[Mapping[str, str]]]
"""Renders the current pieces, in order, by element id; `empty` is always the first."""


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

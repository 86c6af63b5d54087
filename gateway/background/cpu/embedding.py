"""Runs the bundled embedding model in a separate process; the gateway never loads it."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import cast

from cachetools import LRUCache

from gateway.background.cpu.executor import Cpu
from gateway.domain.errors import SupaclawError, raising
from gateway.domain.json import Json
from gateway.domain.memory.memories import EmbeddingUnavailable, Vector
from gateway.llm.embedding import e5
from gateway.llm.embedding.remote import check_vectors

QUERY_SECONDS, LOADING_SECONDS = 0.3, 2.0
"""How long a query waits for its vector, and while the model is being loaded; then its search uses keywords only."""
IDLE_SECONDS = 300.0
_PIECE_SECONDS = 300.0
"""The limit for a model that hangs; on a busy machine, loading alone took more than a minute."""
_PIECE_CHARACTERS, _TEXT_COSTS = 600, 80
"""Characters embedded in one batch, about 0.05 seconds of work: a query waits no longer for the batch before it.

A text of a few words costs as much as 80 characters of a long one; larger batches are no faster.
"""

MAX_EXPECTED = 16
"""Expected questions whose vectors are kept until they are queried."""

Model = Callable[[str, list[str]], Json]
"""The type of `e5.vectors`, which runs in the child process, never here."""


class LocalEmbedder:
    """Implements `Embedder`. The first use starts the process, which ends after some idle minutes."""

    def __init__(
        self, model: Model = e5.vectors, *, patience: float | None = None, seconds: float = _PIECE_SECONDS
    ) -> None:
        self.name, self.dimensions = e5.NAME, e5.DIMENSIONS
        self._model = model
        self._patience = patience
        self._seconds = seconds
        self._loaded = False
        self._closed = False
        self._cpu = Cpu(idle_seconds=IDLE_SECONDS)
        self._turn = asyncio.Lock()
        self._work: asyncio.Task[tuple[Vector, ...]] | None = None
        self._expected: LRUCache[str, asyncio.Task[tuple[Vector, ...]]] = LRUCache(MAX_EXPECTED)

    def expect(self, text: str, /) -> None:
        """Begin to embed what will probably be queried; nothing while other texts wait for the model."""
        self._expected.pop(text, None)  # it may have failed
        if not self._closed and not self._turn.locked():
            begun = self._expected[text] = asyncio.create_task(self._ask(e5.QUERY, [text]), name="expected question")
            begun.add_done_callback(_see_failure)

    async def query(self, text: str, /) -> Vector:
        """Embed a query; raises `EmbeddingUnavailable` if that takes too long. Loading continues for the next query."""
        patience = self._patience or (QUERY_SECONDS if self._loaded and self._cpu.is_running else LOADING_SECONDS)
        told = f"the embedding model is being loaded or busy (no answer within {patience:g} seconds)"
        with raising(EmbeddingUnavailable(told), TimeoutError):
            async with asyncio.timeout(patience):
                [vector] = await (self._expected.pop(text, None) or self._ask(e5.QUERY, [text]))
        return vector

    async def passages(self, texts: Sequence[str], /) -> tuple[Vector, ...]:
        """Embed the texts in small batches, each in turn, so that queries go in between."""
        found: list[Vector] = []
        for piece in _pieces(texts):
            found += await self._ask(e5.PASSAGE, piece)
        return tuple(found)

    async def close(self) -> None:
        """End the process; waiting pieces fail."""
        self._closed = True
        await self._cpu.close()
        if self._work is not None:
            await asyncio.wait([self._work])

    async def _ask(self, prefix: str, texts: list[str]) -> tuple[Vector, ...]:
        """Embed a piece in its turn. Cancelling gives up the turn; a piece that is being embedded goes on."""
        async with self._turn:
            if self._work is not None:
                await asyncio.wait([self._work])
            self._work = asyncio.create_task(self._embed(prefix, texts), name="embedding")
            return await asyncio.shield(self._work)

    async def _embed(self, prefix: str, texts: list[str]) -> tuple[Vector, ...]:
        if self._closed:
            raise EmbeddingUnavailable("the gateway stops")
        self._loaded = self._loaded and self._cpu.is_running
        try:
            found = await self._cpu.run(self._model, prefix, cast("Json", texts), seconds=self._seconds)
        except (SupaclawError, OSError) as exc:
            why = "the gateway stops" if self._closed else f"the embedding model failed: {exc}"
            raise EmbeddingUnavailable(why) from exc
        given = cast("list[Vector]", found if isinstance(found, list) else [])
        vectors = check_vectors("the embedding model", given, len(texts), e5.DIMENSIONS)
        self._loaded = True
        return vectors


def _see_failure(begun: asyncio.Task[tuple[Vector, ...]]) -> None:
    """Perhaps nobody queries it, and asyncio reports failures that nobody saw."""
    if not begun.cancelled():
        begun.exception()


def _pieces(texts: Sequence[str]) -> Iterator[list[str]]:
    piece: list[str] = []
    size = 0
    for text in texts:
        costs = max(len(text), _TEXT_COSTS)
        if piece and size + costs > _PIECE_CHARACTERS:
            yield piece
            piece, size = [], 0
        piece.append(text[: e5.MAX_CHARACTERS])
        size += costs
    if piece:
        yield piece

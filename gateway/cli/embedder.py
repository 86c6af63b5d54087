"""The embedder of a command that asks one question."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gateway.domain.embedding import Embedder
from gateway.domain.memory import Mode


@asynccontextmanager
async def query_embedder(mode: Mode) -> AsyncIterator[Embedder | None]:
    """None if words are to be compared only, or there is no model."""
    del mode
    yield None

"""The embedder of a command that asks one question: a model of its own, so that it needs no running gateway."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.domain.memory.memories import Embedder, SearchMode

LOAD_SECONDS = 20.0
"""How long a question waits for the shipped model, which is loaded for it; then the search goes on by words."""


@asynccontextmanager
async def query_embedder(mode: SearchMode, clean: Callable[[str], str]) -> AsyncIterator[Embedder | None]:
    """None if only words are to be compared, or `models.embedding` is "none"."""
    from gateway.app.storage.offline import StoredSecrets

    environment = Environment.read(os.environ)
    models = load(environment.config, os.environ, StoredSecrets(environment, os.environ)).models
    name = "none" if mode is SearchMode.KEYWORD else models.embedding.removeprefix("litellm:")
    if name == "none":
        yield None
    elif name == "local":
        from gateway.background.cpu.embedding import LocalEmbedder

        local = LocalEmbedder(patience=LOAD_SECONDS)
        try:
            yield local
        finally:
            await local.close()
    else:
        from gateway.llm.client import build_client
        from gateway.llm.embedding.remote import RemoteEmbedder

        clock = SystemClock()
        client = await build_client(models, os.environ, clock)
        try:
            yield RemoteEmbedder(name, client.embed, clock, clean=clean)
        finally:
            await client.close()

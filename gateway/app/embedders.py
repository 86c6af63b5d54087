"""The embedding model that is configured now."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.app.current import Current
from gateway.background.embedding import LocalEmbedder
from gateway.domain.clock import Clock
from gateway.domain.embedding import Embedder
from gateway.llm.embedding.remote import RemoteEmbedder


@dataclass
class Embedders:
    """Whoever embeds asks for it every time; a model that is set again is a new one."""

    current: Current
    clock: Clock
    _local: LocalEmbedder = field(default_factory=LocalEmbedder)
    _remote: RemoteEmbedder | None = None

    def embedder(self, name: str | None = None, /) -> Embedder | None:
        """None when `models.embedding` is "none", and for a provider's vectors when it is "local": nothing goes out."""
        configured = self._configured(self.current.config.models.embedding.removeprefix("litellm:"))
        if configured is None or name is None or name == configured.name:
            return configured
        if name == self._local.name:
            return self._local
        if configured is self._local:
            return None
        return RemoteEmbedder(name.removeprefix("litellm:"), self._embed, self.clock)

    def _configured(self, model: str) -> Embedder | None:
        if model in ("none", "local"):
            return self._local if model == "local" else None
        if self._remote is None or self._remote.model != model:
            self._remote = RemoteEmbedder(model, self._embed, self.clock)
        return self._remote

    async def _embed(self, model: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """With the keys of now."""
        return await self.current.model.embed(model, texts)

    async def close(self) -> None:
        """End the process of the local one."""
        await self._local.close()

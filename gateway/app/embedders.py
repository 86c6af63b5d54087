"""The embedding model that is configured now."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gateway.app.current import Current
from gateway.background.embedding import LocalEmbedder
from gateway.domain.clock import Clock
from gateway.domain.embedding import Embedder
from gateway.flow.secrets.guard import Clean
from gateway.llm.embedding.remote import RemoteEmbedder


@dataclass
class Embedders:
    """Whoever embeds asks for it every time; a provider's model keeps what it learned of itself."""

    current: Current
    clock: Clock
    clean: Clean = str
    """Takes live secrets out of what goes to a provider."""
    _local: LocalEmbedder = field(default_factory=LocalEmbedder)
    _remotes: dict[str, RemoteEmbedder] = field(default_factory=dict)

    def embedder(self, name: str | None = None, /) -> Embedder | None:
        """None when `models.embedding` is "none", and for a provider's vectors when it is "local": nothing goes out."""
        configured = self._configured(self.current.config.models.embedding.removeprefix("litellm:"))
        if configured is None or name is None or name == configured.name:
            return configured
        if name == self._local.name:
            return self._local
        if configured is self._local:
            return None
        return self._remote(name.removeprefix("litellm:"))

    def _configured(self, model: str) -> Embedder | None:
        if model in ("none", "local"):
            return self._local if model == "local" else None
        return self._remote(model)

    def _remote(self, model: str) -> RemoteEmbedder:
        if model not in self._remotes:
            self._remotes[model] = RemoteEmbedder(model, self._embed, self.clock, clean=self.clean)
        return self._remotes[model]

    async def _embed(self, model: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """With the keys of now."""
        return await self.current.model.embed(model, texts)

    async def close(self) -> None:
        """End the process of the local one."""
        await self._local.close()

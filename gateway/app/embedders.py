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

    def embedder(self) -> Embedder | None:
        """None when `models.embedding` is "none"."""
        match self.current.config.models.embedding.removeprefix("litellm:"):
            case "none":
                return None
            case "local":
                return self._local
            case model:
                if self._remote is None or self._remote.model != model:
                    self._remote = RemoteEmbedder(model, self._embed, self.clock)
                return self._remote

    async def _embed(self, model: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """With the keys of now."""
        return await self.current.model.embed(model, texts)

    async def close(self) -> None:
        """End the process of the local one."""
        await self._local.close()

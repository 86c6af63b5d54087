"""What a saved config.json changes while the gateway runs: the configuration, the models, the embedding model."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Self

from gateway.agent.limits import Limits
from gateway.background.cpu.embedding import LocalEmbedder
from gateway.background.cpu.extraction import Transcribe
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.model import Config
from gateway.domain.memory.memories import Embedder
from gateway.domain.time import Clock
from gateway.flow.secrets.guard import Clean
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.llm.client import Description, ModelClient, build_client
from gateway.llm.embedding.remote import RemoteEmbedder
from gateway.llm.vendors import cheap_model_beside

MEGABYTE = 1024 * 1024


@dataclass
class LiveConfig:
    """What a saved config.json changes while everything runs; the parts ask for it whenever they need it."""

    config: Config
    model: ModelClient

    @classmethod
    async def loaded(cls, environment: Environment, secrets: LiveSecrets, clock: Clock) -> Self:
        """As config.json says, with these secrets; raises `ConfigError`."""
        config = load(environment.config, os.environ, secrets.lookup)
        return cls(config, await build_client(config.models, os.environ, clock))

    async def apply(self, config: Config, clock: Clock) -> ModelClient | None:
        """Use an edited configuration; return the models it replaced, for the caller to close once no turn uses them.

        The old ones stay in use until the new ones are built, which may take seconds.
        """
        replaced = None
        if config.models != self.config.models:
            replaced, self.model = self.model, await build_client(config.models, os.environ, clock)
        self.config = config
        return replaced

    def limits(self) -> Limits:
        """What a run, a day and a month may cost."""
        budgets = self.config.budgets
        return Limits(
            usd=budgets.run_usd,
            day_usd=budgets.day_usd,
            month_usd=budgets.month_usd,
            day_tokens=budgets.day_tokens,
        )

    def describe(self) -> Description:
        """Which models answer, and why."""
        return self.model.describe()

    def summary_model(self) -> ModelClient | None:
        """Who shortens conversations that go on, and describes files; None when no model is connected."""
        return self.model.with_primary(self.config.models.summary)

    def cheap_model(self) -> ModelClient | None:
        """Who summarises chats that have ended: `models.summary`, else the cheap one of the primary's provider."""
        models = self.config.models
        primary = self.model.describe().chain[0]
        return self.model.with_primary(models.summary or cheap_model_beside(primary, models.providers))

    def heartbeat_model(self) -> ModelClient | None:
        """Who is asked by a heartbeat; None when no model is connected."""
        return self.model.with_primary(self.config.heartbeat.model)

    def named_model(self, name: str | None) -> ModelClient | None:
        """The one that is asked for, before the others; None when none is, or it is no longer configured."""
        return self.model.with_primary(name) if name in self.model.describe().chain else None

    def agent_model(self, name: str | None, temperature: float, max_tokens: int | None) -> ModelClient | None:
        """Who answers for an agent of a task tree; None when no model is connected."""
        found = self.model.with_primary(name)
        return found.tuned(temperature, max_tokens) if found else None

    def hear(self) -> Transcribe | None:
        """Who writes down what is said in audio; None when no model for it is named."""
        name = self.config.models.transcription
        return None if name is None else partial(self.model.transcribe, name)

    def longest_file(self) -> int:
        """Bytes of the largest file that is taken in."""
        return self.config.limits.file_mb * MEGABYTE


@dataclass
class Embedders:
    """Whoever embeds asks for it every time; a provider's model keeps what it learned of itself."""

    current: LiveConfig
    clock: Clock
    clean: Clean
    """Removes live secrets from the texts that go to a provider."""
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
            self._remotes[model] = RemoteEmbedder(model, self._embed, self.clock, self.clean)
        return self._remotes[model]

    async def _embed(self, model: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """With the keys of now."""
        return await self.current.model.embed(model, texts)

    async def close(self) -> None:
        """End the process of the local one."""
        await self._local.close()

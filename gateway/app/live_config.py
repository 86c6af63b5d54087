"""The configuration and its models, which a saved config.json replaces at run time."""

import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from gateway.agent.limits import Limits
from gateway.background.cpu.embedding import LocalEmbedder
from gateway.background.cpu.extraction import Transcribe
from gateway.background.jobs import Speech
from gateway.config.channels import enabled_channels
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.config.model import Config
from gateway.domain.conversation.model import Highest
from gateway.domain.memory.memories import Embedder
from gateway.domain.time import Clock
from gateway.flow.secrets.guard import Clean
from gateway.flow.secrets.live_secrets import LiveSecrets
from gateway.llm.auto import connected_models
from gateway.llm.client import Description, ModelClient, build_client
from gateway.llm.embedding.remote import RemoteEmbedder
from gateway.llm.vendors import Refusals, cheap_model_beside, default_model, is_enabled
from gateway.store.connection.pool import Database
from gateway.store.delivery.addresses import AddressRow
from gateway.store.work import steps

MEGABYTE = 1024 * 1024


@dataclass
class LiveConfig:
    """The current configuration and its models; parts ask for them at each use."""

    config: Config
    model: ModelClient
    refusals: Refusals = field(default_factory=Refusals, kw_only=True)
    """The refusals of models, whatever the configuration was then."""
    knows_ollama: Callable[[], Awaitable[bool]] | None = field(default=None, kw_only=True)
    """Tells whether a local Ollama has answered for this gateway before, so needs no yes."""
    clock: Clock = field(default_factory=SystemClock, kw_only=True)

    @classmethod
    async def loaded(cls, environment: Environment, secrets: LiveSecrets, clock: Clock, database: Database) -> Self:
        """Load config.json with these secrets; raises `ConfigError`."""
        config = load(environment.config, os.environ, secrets.lookup)
        refusals = Refusals(clock)

        async def knows_ollama() -> bool:
            return await database.read(lambda conn: steps.has_answered(conn, "ollama/%"))

        model = await build_client(config.models, os.environ, clock, refusals=refusals, knows_ollama=knows_ollama)
        return cls(config, model, refusals=refusals, knows_ollama=knows_ollama, clock=clock)

    async def apply(self, config: Config) -> ModelClient | None:
        """Use an edited configuration; return the replaced models, for the caller to close when no turn uses them.

        The old models stay in use while the new ones are built, which may take seconds.
        """
        replaced = None
        if config.models != self.config.models:
            made = await build_client(
                config.models, os.environ, self.clock, refusals=self.refusals, knows_ollama=self.knows_ollama
            )
            replaced, self.model = self.model, made
        self.config = config
        return replaced

    def limits(self) -> Limits:
        """The budgets of a run, a day and a month."""
        budgets = self.config.budgets
        return Limits(
            usd=budgets.run_usd, day_usd=budgets.day_usd, month_usd=budgets.month_usd, day_tokens=budgets.day_tokens
        )

    def describe(self) -> Description:
        """The active models, why these, and which others may be chosen."""
        models, described = self.config.models, self.model.describe()
        connected = [choice.model for choice in connected_models(os.environ, models.providers)]
        members = tuple(name for name in models.members if is_enabled(name, models.providers))
        choices = tuple(dict.fromkeys((*described.chain, *connected, *members)))
        return replace(described, choices=choices, members=members)

    def summary_model(self) -> ModelClient | None:
        """The model that compacts conversations and describes files; None if none is connected."""
        return self.model.with_primary(self.config.models.summary)

    def cheap_model(self) -> ModelClient | None:
        """The model that summarises ended chats: `models.summary`, else the cheap model of the primary's provider."""
        models = self.config.models
        primary = self.model.describe().chain[0]
        return self.model.with_primary(models.summary or cheap_model_beside(primary, models.providers))

    def heartbeat_model(self) -> ModelClient | None:
        """The model of heartbeats; None if none is connected."""
        return self.model.with_primary(self.config.heartbeat.model)

    def chosen_model(self, at: AddressRow, owner: bool) -> str | None:
        """The choice of a chat, until its time is over, its provider is off, or a member may no longer choose it."""
        models, over = self.config.models, at.model_until is not None and at.model_until <= self.clock.now()
        if at.model is None or over or not is_enabled(at.model, models.providers):
            return None
        return at.model if owner or at.model in models.members else None

    def chat_model(self, asked: str | None, at: AddressRow, *, owner: bool) -> ModelClient | None:
        """The chain for a message: first the model it was `asked` of, if that is configured, else the chat's choice."""
        name = asked if asked in self.model.describe().chain else self.chosen_model(at, owner)
        found = (self.model.with_primary(name) if name else None) or self.model
        level = at.thinking if owner or found.describe().chain[0] in self.config.models.members else None
        return found.thinking(level) if level else found

    def agent_model(self, name: str | None, temperature: float, max_tokens: int | None) -> ModelClient | None:
        """The model for an agent of a task tree, `provider/` for the default of that one; None if none is connected."""
        if name is not None and name.endswith("/"):
            name = default_model(name[:-1], self.config.models.providers)
        found = self.model.with_primary(name)
        return found.tuned(temperature, max_tokens) if found else None

    def hear(self) -> Transcribe | None:
        """The function that transcribes audio; None if no model for it is configured."""
        models = self.config.models
        if models.transcription is None:
            return None
        return partial(self.model.transcribe, (models.transcription, *models.transcription_fallbacks))

    def highest_heard(self, size: int) -> Highest:
        """The most that transcribing a recording of so many bytes may cost."""
        models = self.config.models
        return self.model.highest_heard(filter(None, (models.transcription, *models.transcription_fallbacks)), size)

    def speech(self) -> Speech | None:
        """How answers are read aloud; None if no model for it is configured."""
        voice = self.config.voice
        if voice.model is None:
            return None
        speak = partial(self.model.speak, voice.model, voice.name)
        return Speech(speak, partial(self.model.highest_spoken, voice.model), voice.model, voice.reply)

    def enabled_channels(self) -> Collection[str]:
        """The names of the enabled channels."""
        return enabled_channels(self.config.channels)

    def bash_urls(self) -> Sequence[str]:
        """The addresses that the virtual shell's curl may read, each with everything below it."""
        return [str(url) for url in self.config.tools.bash.allow_urls]

    def longest_file(self) -> int:
        """The size limit of uploads in bytes."""
        return self.config.limits.file_mb * MEGABYTE


@dataclass
class Embedders:
    """The current embedding models; ask at each use. Keeps a provider's model, which learns its rate limits."""

    current: LiveConfig
    clock: Clock
    clean: Clean
    """Removes live secrets from the texts that go to a provider."""
    _local: LocalEmbedder = field(default_factory=LocalEmbedder)
    _remotes: dict[str, RemoteEmbedder] = field(default_factory=dict)

    def embedder(self, name: str | None = None, /) -> Embedder | None:
        """The configured model, or the one with this name; None if `models.embedding` rules it out.

        "none" rules out all models, "local" those of providers: then no text leaves the machine.
        """
        configured = self.current.config.models.embedding
        if configured == "none" or (configured == "local" and name not in (None, self._local.name)):
            return None
        wanted = name or configured
        return self._local if wanted in ("local", self._local.name) else self._remote(wanted.removeprefix("litellm:"))

    def expect(self, text: str) -> None:
        """Begin to embed a question that a turn will probably ask, if that costs nothing and stays on this machine."""
        if self.current.config.models.embedding == "local":
            self._local.expect(text)

    def _remote(self, model: str) -> RemoteEmbedder:
        return self._remotes.setdefault(model, RemoteEmbedder(model, self._embed, self.clock, self.clean))

    async def _embed(self, model: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Embed with the current keys."""
        return await self.current.model.embed(model, texts)

    async def close(self) -> None:
        """End the process of the local model."""
        await self._local.close()

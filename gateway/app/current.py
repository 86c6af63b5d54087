"""What may change while the gateway runs: its configuration, and the models that answer."""

import os
from dataclasses import dataclass
from functools import partial
from typing import Self

from gateway.agent.limits import Limits
from gateway.background.extraction import Hear
from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.model import Config
from gateway.domain.clock import Clock
from gateway.flow.secrets.live import LiveSecrets
from gateway.llm.client import Description, ModelClient, build_client
from gateway.llm.vendors import cheap_model_beside

MEGABYTE = 1024 * 1024


@dataclass
class Current:
    """What a saved config.json changes while everything runs; the parts ask for it whenever they need it."""

    config: Config
    model: ModelClient

    @classmethod
    async def loaded(cls, environment: Environment, secrets: LiveSecrets, clock: Clock) -> Self:
        """As config.json says, with these secrets; raises `ConfigError`."""
        config = load(environment.config, os.environ, secrets.lookup)
        return cls(config, await build_client(config.models, os.environ, clock))

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

    def hear(self) -> Hear | None:
        """Who writes down what is said in audio; None when no model for it is named."""
        name = self.config.models.transcription
        return None if name is None else partial(self.model.transcribe, name)

    def longest_file(self) -> int:
        """Bytes of the largest file that is taken in."""
        return self.config.limits.file_mb * MEGABYTE

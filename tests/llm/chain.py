"""A chain of models in a test: scripted or real providers, and a clock on which waiting takes no time."""

from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta

from gateway.domain.conversation.model import ModelEvent, Prompt, Reply, UserMessage
from gateway.domain.settings import CallParams, ModelSettings
from gateway.llm.call import CallServices, RetryPolicy
from gateway.llm.client import ModelClient, build_client
from gateway.llm.errors import Cooldowns
from gateway.llm.prices import Prices
from gateway.llm.provider import Provider, Providers
from tests.llm.scripted import Script, ScriptedProvider

HELLO = Prompt((UserMessage("hello"),))


class FakeClock:
    """Sleeping moves it on and is written down."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.time = 0.0

    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC) + timedelta(seconds=self.time)

    def monotonic(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds


class ScriptedProviders(Providers):
    """One script per model."""

    def __init__(self, scripts: Mapping[str, Script]) -> None:
        super().__init__({}, {})
        self.by_model = {model: ScriptedProvider(script) for model, script in scripts.items()}

    def of(self, model: str) -> Provider:
        return self.by_model[model]

    def secrets(self, model: str) -> tuple[str, ...]:
        return (f"secret-of-{model}",)

    def asked(self) -> dict[str, int]:
        return {model: len(provider.requests) for model, provider in self.by_model.items()}


class Chain:
    """A client over scripts, in the order given."""

    def __init__(
        self,
        scripts: Mapping[str, Script] | None = None,
        /,
        *,
        silence: float = 120,
        params: CallParams | None = None,
        **more: Script,
    ) -> None:
        scripts = {**(scripts or {}), **more}
        self.clock = FakeClock()
        self.providers = ScriptedProviders(scripts)
        self.cooldowns = Cooldowns(self.clock)
        services = CallServices(
            self.providers,
            params or CallParams(),
            Prices(),
            self.clock,
            self.cooldowns,
            RetryPolicy(max_silence=silence),
        )
        self.client = ModelClient(tuple(scripts), "a test", services)

    async def events(self) -> list[ModelEvent]:
        return [event async for event in self.client.stream(HELLO)]

    async def reply(self) -> Reply:
        return last_reply(await self.events())


def last_reply(events: list[ModelEvent]) -> Reply:
    reply = events[-1]
    assert isinstance(reply, Reply)
    assert not any(isinstance(event, Reply) for event in events[:-1])
    return reply


async def client_for(
    base_url: str,
    *models: str,
    clock: FakeClock | None = None,
    engine: str = "auto",
    silence: float = 120.0,
    api: str = "chat",
    thinking: str | None = None,
) -> ModelClient:
    """A client whose every provider is at one address, with the key `sk-test-secret`."""
    prefixes = {model.partition("/")[0] for model in models}
    access = {"api_key": "sk-test-secret-1234", "base_url": base_url, "api": api}
    settings = ModelSettings.model_validate(
        {
            "primary": models[0],
            "fallbacks": models[1:],
            "engine": engine,
            "thinking": thinking,
            "providers": dict.fromkeys(prefixes, access),
        }
    )
    return await build_client(settings, {}, clock or FakeClock(), RetryPolicy(max_silence=silence))


async def collect(events: AsyncIterator[ModelEvent]) -> list[ModelEvent]:
    return [event async for event in events]

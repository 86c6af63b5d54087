"""The model as the rest of the gateway sees it: a chain of models behind one interface."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from time import monotonic

from gateway.domain.conversation.model import (
    Highest,
    ModelEvent,
    Prompt,
    Reply,
    Usage,
    UserMessage,
)
from gateway.domain.json import JsonObject
from gateway.domain.settings import CallParams, ModelSettings, ThinkingLevel
from gateway.domain.text.tokens import estimate
from gateway.domain.time import Clock
from gateway.llm.auto import GUIDE, ModelChoice, choose_model
from gateway.llm.call import USUAL_POLICY, CallServices, ModelCall, RetryPolicy
from gateway.llm.errors import Cooldowns, Cooling, ModelError, scrub
from gateway.llm.local_servers import ANSWER_SHARE, LocalModel, look_up, served_models
from gateway.llm.prices import Prices, estimate_prompt
from gateway.llm.protocol.wire import thinking_budget
from gateway.llm.provider import Provider, Providers
from gateway.llm.vendors import LOCAL_SERVERS, Refusals, endpoint_of, is_enabled, split_model

_LONGEST_WAIT_S = 30.0
"""The longest pause that a transcription takes because a provider asked for it."""
_LEAST_AUDIO_BYTES_PER_SECOND = 2_000
"""Of speech; a recording whose length the service doesn't tell is counted as if it had so few."""


@dataclass(frozen=True, slots=True)
class Description:
    """The models as `/model` and `/status` show them: the next to answer and why, the chain, those cooling down."""

    active: str
    why: str
    chain: tuple[str, ...]
    cooling: tuple[Cooling, ...]
    thinking: ThinkingLevel | None = None
    choices: tuple[str, ...] = ()
    """The models that the owner may choose for a chat, where that was asked for."""
    members: tuple[str, ...] = ()
    """Those that members may choose."""
    offered: str = ""
    """A model of a local server that waits for the owner's yes."""
    speed: float | None = None
    """Tokens per second of the first answer of the active model; None before that."""


_QUESTION = Prompt((UserMessage("Count from one to twenty in words, and write nothing else."),))


@dataclass(frozen=True, slots=True)
class FirstAnswer:
    """The reply to a short question, and its tokens per second, if they can be told."""

    reply: Reply
    speed: float | None

    def __str__(self) -> str:
        """ "answered in 1.2 s, 45 tokens/s"; without the speed if the answer came at once."""
        speed = f", {self.speed:.0f} tokens/s" if self.speed else ""
        return f"answered in {self.reply.latency_ms / 1000:.1f} s{speed}"


class ModelClient:
    """Implements `Model`.

    A transient failure (server, network, silence) is retried on the same model. If a model is busy, refuses or is
    unsuitable, the next one is asked, and it is tried last for a while. Every call tries every model. A changed
    configuration gets a new client; calls in progress continue with the old one.
    """

    def __init__(self, chain: tuple[str, ...], why: str, services: CallServices, offered: str = "") -> None:
        self._chain = chain
        self._why = why
        self._services = services
        self._offered = offered

    def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Yield deltas and restarts, then one `Reply`, or raise `ModelsExhausted`. Closing it stops the request."""
        return ModelCall(prompt, self._services).run(self._services.cooldowns.order(self._chain))

    async def try_out(self) -> FirstAnswer:
        """Ask for a short answer; raises `ModelsExhausted`."""
        await self.warm()
        async with aclosing(self.stream(_QUESTION)) as events:
            async for event in events:
                if isinstance(event, Reply):
                    return FirstAnswer(event, self._services.speeds.get(event.model))
        raise AssertionError("a stream ends with its reply")

    def describe(self) -> Description:
        """The current state, for people."""
        cooldowns, thinking = self._services.cooldowns, self._services.params.thinking
        first, current = cooldowns.order(self._chain)[0], cooldowns.current()
        speed = self._services.speeds.get(first)
        return Description(first, self._why, self._chain, current, thinking, offered=self._offered, speed=speed)

    def prompt_budget(self) -> int:
        """The most tokens a prompt may have for every model of the chain to accept it and still answer."""
        windows = [self._services.prices.of(model).window for model in self._chain]
        return min(max(window - self._longest, window - window // ANSWER_SHARE) for window in windows)

    def highest(self, prompt: Prompt) -> Highest:
        """The most that the answer may cost, whichever model of the chain gives it."""
        tokens, longest = estimate_prompt(prompt), self._longest
        each = [self._services.prices.highest(model, tokens, longest) for model in self._chain]
        return Highest(max(one.usd for one in each), max(one.tokens for one in each))

    @property
    def _longest(self) -> int:
        params = self._services.params
        return params.max_output_tokens + thinking_budget(params.thinking)

    def thinking(self, level: ThinkingLevel) -> "ModelClient":
        """The same chain with this level of thinking."""
        return self._with({"thinking": level})

    def with_primary(self, model: str | None) -> "ModelClient | None":
        """The same chain with `model`, if given, in front; None if no model is connected at all."""
        chain = tuple(dict.fromkeys((model or self._chain[0], *self._chain)))
        connected = tuple(name for name in chain if name != GUIDE)
        return ModelClient(connected, self._why, self._services) if connected else None

    def tuned(self, temperature: float, max_output_tokens: int | None) -> "ModelClient":
        """The same chain with another temperature and, if given, another longest answer."""
        longest = max_output_tokens or self._services.params.max_output_tokens
        return self._with({"temperature": temperature, "max_output_tokens": longest})

    def _with(self, params: JsonObject) -> "ModelClient":
        services = replace(self._services, params=self._services.params.model_copy(update=dict(params)))
        return ModelClient(self._chain, self._why, services)

    async def transcribe(self, models: Sequence[str], name: str, mime: str, audio: bytes) -> Reply:
        """Transcribe a recording with the first of these models that can.

        A failure that may pass is tried again, as often as the retry policy says. Raises `ModelError`: of all models,
        that of one which may still work, if there is any.
        """
        policy, failed = self._services.retry_policy, dict[str, ModelError]()
        for pause in (0.0, *policy.delays):
            waits = [min(error.retry_after or 0.0, _LONGEST_WAIT_S) for error in failed.values()]
            await asyncio.sleep(max((pause, *waits)))
            for model in [each for each in models if each not in failed or failed[each].repeatable]:
                try:
                    return await self._transcribe_once(model, name, mime, audio)
                except ModelError as error:
                    failed[model] = error
            if not any(error.repeatable for error in failed.values()):
                break
        raise min(failed.values(), key=lambda error: (not error.temporary, not error.repeatable))

    async def _transcribe_once(self, model: str, name: str, mime: str, audio: bytes) -> Reply:
        began = monotonic()
        with self._provider(model) as provider:
            found = await provider.transcribe(model, name, mime, audio)
        usage, seconds = Usage(found.input_tokens or 0, found.output_tokens or 0), found.seconds
        cost = self._services.prices.transcription(model, usage, seconds or len(audio) / _LEAST_AUDIO_BYTES_PER_SECOND)
        return Reply(found.text, (), replace(usage, cost_usd=cost), model, int((monotonic() - began) * 1000))

    async def speak(self, model: str, voice: str, text: str) -> tuple[bytes, Usage]:
        """A recording of the text, and its cost; tried once. Raises `ModelError`."""
        with self._provider(model) as provider:
            sound = await provider.speak(model, voice, text)
        return sound, Usage(estimate(text), cost_usd=self._services.prices.speech(model, text))

    def highest_heard(self, models: Iterable[str], size: int) -> Highest:
        """The most that transcribing a recording of so many bytes may cost, whichever of the models does it."""
        seconds = size / _LEAST_AUDIO_BYTES_PER_SECOND
        return Highest(max(self._services.prices.transcription(model, Usage(), seconds) for model in models))

    def highest_spoken(self, model: str, text: str) -> Highest:
        """The most that reading a text aloud may cost; tokens of the text where the model has no price."""
        usd = self._services.prices.speech(model, text)
        return Highest(usd) if usd else Highest(tokens=estimate(text))

    async def embed(self, model: str, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector for each text by this model, unchecked; tried once. Raises `ModelError`."""
        with self._provider(model) as provider:
            return await provider.embed(model, texts)

    async def warm(self) -> None:
        """Import what the next call needs; to be called after the start."""
        await self._services.providers.of(self.describe().active).warm()

    async def close(self) -> None:
        """Close every connection; calls in progress fail, so wait for them first."""
        await self._services.providers.close()

    @contextmanager
    def _provider(self, model: str) -> Iterator[Provider]:
        """The provider of a model; secrets in its errors are masked."""
        try:
            yield self._services.providers.of(model)
        except ModelError as error:
            raise replace(error, message=scrub(error.message, self._services.providers.secrets(model))) from error


async def build_client(
    settings: ModelSettings,
    environ: Mapping[str, str],
    clock: Clock,
    retry_policy: RetryPolicy = USUAL_POLICY,
    refusals: Refusals | None = None,
    knows_ollama: Callable[[], Awaitable[bool]] | None = None,
) -> ModelClient:
    """Build the client for one configuration; looks for local servers only if `auto` finds no key. Checks no key.

    `knows_ollama` tells whether an Ollama has answered here before, so needs no yes; it is asked only if one was found.
    """
    choice = await _primary(settings, environ, knows_ollama)
    each = dict.fromkeys((choice.model, *settings.fallbacks))
    chain = tuple(model for model in each if is_enabled(model, settings.providers))
    why = choice.reason if chain and chain[0] == choice.model else f"the provider of {choice.model} is off"
    params = CallParams(**dict(settings.params), thinking=settings.thinking)
    local, prices = await _served(chain, settings, environ), Prices()
    for model, found in local.items():
        prices.learn(model, found)
    windows = {model: found.window for model, found in local.items()}
    providers = Providers(settings.providers, environ, settings.engine, refusals or Refusals(), windows)
    services = CallServices(providers, params, prices, clock, Cooldowns(clock), retry_policy)
    return ModelClient(chain or (GUIDE,), why, services, choice.offered)


async def _served(chain: Sequence[str], settings: ModelSettings, environ: Mapping[str, str]) -> dict[str, LocalModel]:
    """The models of local servers, as these tell of them now."""
    endpoints = [endpoint_of(split_model(model)[0], settings.providers, environ) for model in chain]
    found = await asyncio.gather(*(look_up(*each) for each in zip(endpoints, chain, strict=True)))
    return {model: local for model, local in zip(chain, found, strict=True) if local is not None}


async def _primary(
    settings: ModelSettings, environ: Mapping[str, str], knows_ollama: Callable[[], Awaitable[bool]] | None
) -> ModelChoice:
    if settings.primary != "auto":
        return ModelChoice(settings.primary, "set in config.json (models.primary)")
    choice = choose_model(environ, settings.providers, ())
    if choice.model != GUIDE:
        return choice
    servers = [each.prefix for each in LOCAL_SERVERS if is_enabled(f"{each.prefix}/", settings.providers)]
    endpoints = [endpoint_of(prefix, settings.providers, environ) for prefix in servers]
    found = [model for models in await asyncio.gather(*map(served_models, endpoints)) for model in models]
    known = bool(found) and found[0].startswith("ollama/") and knows_ollama is not None and await knows_ollama()
    choice = choose_model(environ, settings.providers, found, known_ollama=known)
    if choice.model == GUIDE and settings.fallbacks:
        reason = f"{choice.reason}, so the first of models.fallbacks answers"
        return ModelChoice(settings.fallbacks[0], reason, choice.offered)
    return choice

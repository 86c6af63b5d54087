"""The model as the rest of the gateway sees it: a chain of models that answers as one."""

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass

from gateway.domain.clock import Clock
from gateway.domain.model import ModelEvent, Prompt
from gateway.domain.settings import ModelSettings
from gateway.llm.auto import GUIDE, Choice, choose
from gateway.llm.call import Call, Means, Patience
from gateway.llm.cooldown import Cooldowns, Cooling
from gateway.llm.endpoint import endpoint_of
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.ollama import installed_models
from gateway.llm.prices import Prices
from gateway.llm.provider import Hears
from gateway.llm.registry import Providers
from gateway.llm.scrub import scrub


@dataclass(frozen=True, slots=True)
class Description:
    """What `/model` and `/status` show: who answers next and why, the whole chain, who is left alone for now."""

    active: str
    why: str
    chain: tuple[str, ...]
    cooling: tuple[Cooling, ...]


class ModelClient:
    """Implements `Model`.

    A failure that may pass at once (server, network, silence) is tried again on the same model. A busy, refusing or
    unsuitable model makes room for the next one and is tried last for a while. Every model gets a try in every call.
    A changed configuration gets a client of its own; calls under way go on with the old one.
    """

    def __init__(self, chain: tuple[str, ...], why: str, means: Means) -> None:
        self._chain = chain
        self._why = why
        self._means = means

    def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Deltas, perhaps restarts, then exactly one `Reply`, or `ModelsExhausted`. Closing it stops the request."""
        return Call(prompt, self._means).walk(self._means.cooldowns.order(self._chain))

    def describe(self) -> Description:
        """The state shown to people."""
        cooldowns = self._means.cooldowns
        return Description(cooldowns.order(self._chain)[0], self._why, self._chain, cooldowns.current())

    def prompt_budget(self) -> int:
        """Tokens a prompt may have so that every model of the chain can take it and still answer."""
        return min(map(self._room, self._chain))

    def led_by(self, model: str | None) -> "ModelClient | None":
        """The same chain behind another model, if one is named; None when no model is connected at all."""
        chain = tuple(dict.fromkeys((model or self._chain[0], *self._chain)))
        connected = tuple(name for name in chain if name != GUIDE)
        return ModelClient(connected, self._why, self._means) if connected else None

    async def transcribe(self, model: str, name: str, audio: bytes) -> str:
        """What is said in a sound file, by a model of its own; `name` tells the format. Raises `ModelError`."""
        provider = self._means.providers.of(model)
        if not isinstance(provider, Hears):
            raise ModelError(ErrorKind.BAD_REQUEST, f"{model} cannot write down what is said")
        try:
            return await provider.transcribe(model, name, audio)
        except ModelError as error:
            raise ModelError(error.kind, scrub(error.message, self._means.providers.secrets(model))) from error

    async def warm(self) -> None:
        """Import what the next call needs; meant for the time after start."""
        await self._means.providers.of(self.describe().active).warm()

    async def close(self) -> None:
        """Let go of every connection; calls under way fail, so let them end first."""
        await self._means.providers.close()

    def _room(self, model: str) -> int:
        window = self._means.prices.window(model)
        return max(window - self._means.params.max_output_tokens, window // 2)


async def build_client(
    settings: ModelSettings, environ: Mapping[str, str], clock: Clock, patience: Patience | None = None
) -> ModelClient:
    """The client of one configuration; asks for a local Ollama only if `auto` finds no key. No key is checked."""
    providers = Providers(settings.providers, environ, settings.engine)
    choice = await _primary(settings, environ)
    chain = tuple(dict.fromkeys((choice.model, *settings.fallbacks)))
    means = Means(providers, settings.params, Prices(), clock, Cooldowns(clock), patience or Patience())
    return ModelClient(chain, choice.reason, means)


async def _primary(settings: ModelSettings, environ: Mapping[str, str]) -> Choice:
    if settings.primary != "auto":
        return Choice(settings.primary, "set in config.json (models.primary)")
    choice = choose(environ, settings.providers, ())
    if choice.model != GUIDE:
        return choice
    ollama = endpoint_of("ollama", settings.providers, environ)
    choice = choose(environ, settings.providers, await installed_models(ollama.address))
    if choice.model == GUIDE and settings.fallbacks:
        return Choice(settings.fallbacks[0], f"{choice.reason}, so the first of models.fallbacks answers")
    return choice

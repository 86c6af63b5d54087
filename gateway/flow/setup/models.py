"""Connecting a model by its provider's key."""

from contextlib import aclosing

from pydantic import SecretStr

from gateway.domain.conversation.model import Attempt, ModelsExhausted, Prompt, UserMessage
from gateway.domain.errors import OwnerMustAct
from gateway.domain.settings import ModelSettings, ProviderSettings
from gateway.flow.setup.saving import Connected, Section, Setup
from gateway.llm.call import RetryPolicy
from gateway.llm.client import build_client
from gateway.llm.errors import ErrorKind, scrub
from gateway.llm.vendors import Vendor, split_model, vendor, vendor_of

_QUESTION = Prompt((UserMessage("Answer with one word: ready"),))
_ONCE = RetryPolicy(delays=(0.0,), max_silence=30.0, max_wait=0.0)


class ModelRefused(OwnerMustAct):
    """The test of a model failed."""

    def __init__(self, advice: str, model: str) -> None:
        super().__init__(advice)
        self.model = model


async def connect_model(setup: Setup, key: str, prefix: str = "", model: str = "") -> Connected:
    """Recognise whose key it is, ask the model one question, save both; without a key, change the model alone.

    Raises `OwnerMustAct` with what to do, `UnknownVendor` where the provider has to be chosen.
    """
    key, model = key.strip(), model.strip()
    if scrub(model, ()) != model:
        raise OwnerMustAct("a key was pasted as the model's name; paste it as the key")
    if not key:
        return await _change_model(setup, model)
    whose = vendor_of(key, prefix)
    name, model = whose.keys[0], _full(model or whose.model or "", whose)
    setup.check_unset({name: key}, ("models.primary", f"models.providers.{whose.prefix}.api_key"))
    setup.hide(key)
    now = setup.config().models
    provider = now.providers.get(whose.prefix, ProviderSettings()).model_copy(update={"api_key": SecretStr(key)})
    await _test(setup, now.model_copy(update={"providers": {**now.providers, whose.prefix: provider}}), model, key)
    change: Section = {"primary": model, "providers": {whose.prefix: {"api_key": f"$env:{name}"}}}
    return setup.save(f"{whose.title}, {model}", "models", change, whose.prefix, {name: key})


async def _change_model(setup: Setup, model: str) -> Connected:
    if "/" not in model:
        raise OwnerMustAct("paste an API key, or name a model with its provider, such as openai/gpt-5.6-terra")
    setup.check_unset({}, ("models.primary",))
    await _test(setup, setup.config().models, model)
    return setup.save(model, "models", {"primary": model})


async def _test(setup: Setup, settings: ModelSettings, model: str, key: str = "") -> None:
    """Ask the model alone, once."""
    alone = settings.model_copy(update={"primary": model, "fallbacks": ()})
    client = await build_client(alone, setup.environ, setup.clock, _ONCE)
    try:
        async with aclosing(client.stream(_QUESTION)) as events:
            async for _ in events:
                pass
    except ModelsExhausted as error:
        advice = _advice(vendor(split_model(model)[0]), model, error.attempts[-1])
        raise ModelRefused(scrub(advice, (key,) if key else ()), model) from None
    finally:
        await client.close()


def _full(model: str, whose: Vendor) -> str:
    if "/" in model and not model.startswith(f"{whose.prefix}/"):
        raise OwnerMustAct(f"this {whose.title} key is for models that begin with {whose.prefix}/, not {model}")
    return model if "/" in model else f"{whose.prefix}/{model}"


def _advice(whose: Vendor, model: str, failed: Attempt) -> str:
    match failed.error:
        case ErrorKind.AUTH:
            page = f"; create one at {whose.keys_page}" if whose.keys_page else ""
            return f"{whose.title} refuses this key: it's incomplete, revoked, or another provider's{page}"
        case ErrorKind.NO_CREDIT:
            return f"{whose.title} accepts this key, but its account has no credit; add some, then try again"
        case ErrorKind.UNKNOWN_MODEL:
            return f"{whose.title} has no model {model} for this key; choose another"
        case ErrorKind.RATE_LIMIT | ErrorKind.OVERLOADED:
            return f"{whose.title} is busy; try again in a minute"
        case ErrorKind.NETWORK | ErrorKind.SILENCE:
            return f"{whose.title} can't be reached ({failed.message}); check the network, then try again"
        case _:
            return f"{whose.title} answered: {failed.message}"

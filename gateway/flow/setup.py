"""Connecting a model and channels: a pasted key is recognised, tested and saved; config.json gets `$env:NAME`, never a
key."""

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pydantic import JsonValue, ValidationError

from gateway.config.channels import channel_names, check_channels, known_channel, settings_model
from gateway.config.data.keys import check_unset, save_keys
from gateway.config.editing import config_file
from gateway.config.environment import Environment
from gateway.config.load import Lookup, parse, parse_json, read, secrets_unavailable, variable_of
from gateway.config.model import Config
from gateway.domain.channels.channel import Channel, DeepLinkChannel, ExclusiveChannel, NoFacts, ProbedChannel
from gateway.domain.channels.platform import PlatformError
from gateway.domain.conversation.model import Attempt, ModelsExhausted
from gateway.domain.errors import ConfigError, OwnerMustAct
from gateway.domain.json import fields_of, value_at
from gateway.domain.settings import ModelSettings, ProviderSettings
from gateway.domain.time import Clock
from gateway.flow.channels.supervisor import channel_specs
from gateway.llm.auto import connected_transcribers
from gateway.llm.call import RetryPolicy
from gateway.llm.client import FirstAnswer, build_client
from gateway.llm.errors import ErrorKind, scrub
from gateway.llm.local_servers import served_transcribers
from gateway.llm.prices import Prices
from gateway.llm.vendors import (
    NATIVE,
    TRANSCRIBING_SERVERS,
    Vendor,
    endpoint_of,
    is_enabled,
    split_model,
    vendor,
    vendor_of,
)

Section = dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Connected:
    """The result of connecting; `paste` is the text for `file` if that can't be written from here.

    `link` and a code form the address that sends the code to our account.
    """

    who: str
    paste: str = ""
    file: str = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Setup:
    """The place of keys and configuration, and the configuration now. `hide` keeps a key out of the logs."""

    environment: Environment
    environ: Mapping[str, str] = field(repr=False)
    clock: Clock
    config: Callable[[], Config]
    hide: Callable[[str], None]
    secrets: Lookup = secrets_unavailable

    def check_unset(self, keys: Mapping[str, str], paths: Iterable[str]) -> None:
        """Raise `OwnerMustAct` if the environment has other values than those to be saved: they would beat them."""
        check_unset(self.environ, keys, filter(None, (variable_of(path, self.environ) for path in paths)))

    def save(
        self, who: str, path: str, change: Section, name: str = "", keys: Mapping[str, str] | None = None
    ) -> Connected:
        """Save the keys in the file `name`, then merge `change` into the section at the dotted `path`."""
        if keys:
            save_keys(self.environment.data, name, keys)
        file = self.environment.config
        merged = _merge(self.written(path), change)
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
        try:
            config_file.set_key(file, path, merged, self._check)
        except ConfigError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            return Connected(who, _section_text(path, merged), str(file))
        return Connected(who)

    def written(self, path: str) -> Section:
        """The section at the dotted path in config.json, with references unresolved."""
        found: JsonValue = parse_json(read(self.environment.config) or "{}", self.environment.config.name)
        return fields_of(value_at(found, tuple(path.split("."))))

    def _check(self, text: str) -> None:
        check_channels(parse(text, self.environ, self.secrets, source=self.environment.config.name))


def _merge(written: JsonValue, change: Section) -> Section:
    old: Section = written if isinstance(written, dict) else {}
    return old | {key: _merge(old.get(key), item) if isinstance(item, dict) else item for key, item in change.items()}


def _section_text(path: str, section: Section) -> str:
    whole: JsonValue = section
    for part in reversed(path.split(".")):
        whole = {part: whole}
    return json.dumps(whole, indent=2, ensure_ascii=False)


_TEST_POLICY = RetryPolicy(delays=(0.0,), max_silence=30.0, max_wait=0.0)


class ModelRefused(OwnerMustAct):
    """The test call of a model failed."""

    def __init__(self, advice: str, model: str) -> None:
        super().__init__(advice)
        self.model = model


async def connect_model(setup: Setup, key: str, prefix: str = "", model: str = "") -> Connected:
    """Recognise the provider of the key, test the model, save both; without a key, change the model alone.

    Raises `OwnerMustAct` with what to do, `UnknownVendor` if the provider has to be chosen.
    """
    key, model = key.strip(), model.strip()
    if scrub(model, ()) != model:
        raise OwnerMustAct("a key was pasted as the model's name; paste it as the key")
    if not key:
        return await _change_model(setup, model)
    whose = vendor_of(key, prefix)
    return await _connect(setup, whose, _with_prefix(model or whose.model or "", whose), key)


async def connect_server(setup: Setup, address: str, model: str, key: str = "") -> Connected:
    """Test a model of a server that speaks OpenAI's protocol, and save both; it may need a key.

    Raises `OwnerMustAct` with what to do.
    """
    model = model.strip()
    prefix, _ = split_model(model)
    if "/" not in model or not prefix.isidentifier() or prefix in NATIVE or vendor(prefix).keys:
        raise OwnerMustAct("put a name of your own for the server before the model, such as lm_studio/qwen3-8b")
    return await _connect(setup, vendor(prefix), model, key.strip(), address.strip())


async def _connect(setup: Setup, whose: Vendor, model: str, key: str, address: str = "") -> Connected:
    name, now = f"{whose.prefix.upper()}_API_KEY", setup.config().models
    given = {field: value for field, value in {"base_url": address, "api_key": key}.items() if value}
    keys = {name: key} if key else {}
    setup.check_unset(keys, ("models.primary", *(f"models.providers.{whose.prefix}.{field}" for field in given)))
    setup.hide(key)
    try:
        before = now.providers.get(whose.prefix, ProviderSettings()).model_dump()
        provider = ProviderSettings.model_validate({**before, **given})
    except ValidationError:
        raise OwnerMustAct("this isn't an address; give the server's, such as http://127.0.0.1:1234/v1") from None
    providers = {**now.providers, whose.prefix: provider}
    first = await _test_model(setup, now.model_copy(update={"providers": providers}), model, key)
    references = {"api_key": f"$env:{name}"} if key else {}
    change: Section = {"primary": model, "providers": {whose.prefix: {**given, **references}}}
    return setup.save(f"{whose.title}, {model} ({first})", "models", change, whose.prefix, keys)


async def _change_model(setup: Setup, model: str) -> Connected:
    if "/" not in model:
        raise OwnerMustAct("paste an API key, or name a model with its provider, such as openai/gpt-5.6-terra")
    setup.check_unset({}, ("models.primary",))
    first = await _test_model(setup, setup.config().models, model)
    return setup.save(f"{model} ({first})", "models", {"primary": model})


async def _test_model(setup: Setup, settings: ModelSettings, model: str, key: str = "") -> FirstAnswer:
    """Call the model once, without fallbacks."""
    alone = settings.model_copy(update={"primary": model, "fallbacks": ()})
    client = await build_client(alone, setup.environ, setup.clock, _TEST_POLICY)
    try:
        return await client.try_out()
    except ModelsExhausted as error:
        advice = _advice(vendor(split_model(model)[0]), model, error.attempts[-1])
        raise ModelRefused(scrub(advice, (key,) if key else ()), model) from None
    finally:
        await client.close()


_LOCAL = "on this machine, where any program can listen on its port"


async def transcription_offers(setup: Setup) -> Mapping[str, str]:
    """The models to choose from while none transcribes, each with its price in words.

    One of a server on this machine comes first, then those with a key, the cheapest first.
    """
    models, prices = setup.config().models, Prices()
    if models.transcription is not None:
        return {}
    prefixes = (each for each in TRANSCRIBING_SERVERS if is_enabled(f"{each}/", models.providers))
    servers = (endpoint_of(each, models.providers, setup.environ) for each in prefixes)
    asked = (served_transcribers(each) for each in servers if each.is_local)
    local = [name for names in await asyncio.gather(*asked) for name in names]
    names = connected_transcribers(setup.environ, models.providers)
    keyed = sorted((prices.of(name).per_second, name) for name in names)
    priced = {name: f"${usd * 3600:.2f} an hour" if usd else "price unknown" for usd, name in keyed}
    return {**dict.fromkeys(local[:1], _LOCAL), **priced}


def connect_transcription(setup: Setup, model: str) -> Connected:
    """Let this model transcribe recordings, untested; raises `OwnerMustAct` with what to do."""
    if "/" not in model or scrub(model, ()) != model:
        raise OwnerMustAct("name a model with its provider, such as openai/whisper-1")
    setup.check_unset({}, ("models.transcription",))
    return setup.save(model, "models", {"transcription": model})


def _with_prefix(model: str, whose: Vendor) -> str:
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


_TEST_SECONDS = 25.0


@dataclass(frozen=True, slots=True)
class ChannelForm:
    """The form to connect a messenger: the steps, a text to copy, and the fields to paste."""

    name: str
    title: str
    steps: str
    copy: str
    fields: Mapping[str, str]


def channel_forms() -> list[ChannelForm]:
    """The form of every messenger, by name."""
    return [_channel_form(name) for name in channel_names()]


def _channel_form(name: str) -> ChannelForm:
    model = settings_model(name)
    told = model.descriptions()
    about = {field: told[field] for field in model.VARIABLES.values()}
    return ChannelForm(name, model.TITLE, model.STEPS, model.COPY, about)


async def connect_channel(setup: Setup, name: str, pasted: Mapping[str, str]) -> Connected:
    """Check the tokens with the platform, then save them; raises `OwnerMustAct` with what to do."""
    model = settings_model(known_channel(name, channel_names()))
    tokens = {field: pasted.get(field, "").strip() for field in model.VARIABLES.values()}
    if missing := [model.descriptions()[field] for field, token in tokens.items() if not token]:
        raise OwnerMustAct(f"paste {missing[0]}")
    keys = {variable: tokens[field] for variable, field in model.VARIABLES.items()}
    setup.check_unset(keys, (f"channels.{name}.{field}" for field in tokens))
    for token in tokens.values():
        setup.hide(token)
    running = setup.config().channels.get(name, {})
    section: Section = {**running, **tokens, "enabled": True}
    [spec] = channel_specs({name: section}, (), setup.environment.data, lambda _: NoFacts()).values()
    known = running.get("enabled") is not False and all(running.get(field) == token for field, token in tokens.items())
    who, link = await _test_channel(spec.make(), in_use=known) if tokens else (model.TITLE, "")
    change: Section = {field: f"$env:{variable}" for variable, field in model.VARIABLES.items()}
    if not change or setup.written(f"channels.{name}").get("enabled") is False:
        change["enabled"] = True
    return replace(setup.save(who, f"channels.{name}", change, name, keys), link=link)


async def _test_channel(channel: Channel, *, in_use: bool) -> tuple[str, str]:
    """The name of our account there, and its link for codes. A channel that is in use is not disturbed."""
    if not isinstance(channel, ProbedChannel):
        return channel.name, ""
    try:
        async with asyncio.timeout(_TEST_SECONDS):
            who = await channel.probe()
            if isinstance(channel, ExclusiveChannel) and not in_use:
                await channel.check_unused()
            return who, channel.deep_link("") if isinstance(channel, DeepLinkChannel) else ""
    except TimeoutError:
        raise OwnerMustAct(f"{channel.name} doesn't answer; check the network, then try again") from None
    except PlatformError as error:
        raise OwnerMustAct(f"{error}; try again") from error
    finally:
        await channel.close()

"""The vendors of models: their keys and addresses, the endpoint as configured, and what models there have refused.

Vendors that aren't listed are left to litellm."""

import hmac
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from json import dumps
from typing import TypeAlias
from urllib.parse import urlsplit

from pydantic import SecretStr

from gateway.config.machine import SystemClock
from gateway.domain.conversation.model import PromptMessage
from gateway.domain.errors import OwnerMustAct
from gateway.domain.settings import ProviderSettings
from gateway.domain.time import Clock

ASKED_AGAIN_AFTER = timedelta(days=1)
"""By then the server may run another version of the model."""
IMAGES = "images"
THINKING = "thinking "
"""Before the level that is refused."""
CONTEXT = "a context of "
"""Before what was asked for, and what the model runs with."""
CUTS = " tokens; it counts fewer than it is sent"
"""Behind the context that a model seems to lack."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A `part` that one model, at one address, doesn't take; `source` stands for both, as in `Endpoint.source`."""

    source: str
    part: str
    model: str
    at: datetime


class Refusals:
    """The refusals of all models, in memory; `news` are those that are not stored yet."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._known: dict[str, dict[str, datetime]] = {}
        self._news: list[Refusal] = []

    def of(self, source: str) -> frozenset[str]:
        """The parts that are left out for this model now."""
        since = self._clock.now() - ASKED_AGAIN_AFTER
        return frozenset(part for part, at in self._known.get(source, {}).items() if at > since)

    def note(self, source: str, model: str, part: str) -> None:
        """The model has just refused this part."""
        self._news.append(refusal := Refusal(source, part, model, self._clock.now()))
        self.restore([refusal])

    def restore(self, refusals: Iterable[Refusal]) -> None:
        """Add refusals of an earlier time."""
        for each in refusals:
            parts = self._known.setdefault(each.source, {})
            parts[each.part] = max(each.at, parts.get(each.part, each.at))

    def take_news(self) -> list[Refusal]:
        """The refusals since the last call."""
        news, self._news = self._news, []
        return news


@dataclass(frozen=True, slots=True)
class Vendor:
    """One provider. `base_url` is set if it speaks the OpenAI protocol; `model` is what `auto` picks."""

    prefix: str
    title: str
    keys_page: str = ""
    """Where people create keys; "" if none is needed."""
    base_url: str | None = None
    model: str | None = None
    limit_field: str = "max_tokens"
    short_call_ids: bool = False
    """Tool call ids must be exactly nine letters or digits."""
    host_variable: str = ""
    """Holds a bare `host:port` instead of an address."""
    cheap: str | None = None
    """The model for summaries unless configured otherwise."""
    transcriber: str | None = None
    """The model that is proposed for recordings."""
    key_shape: str = ""
    """The pattern of its keys; an old style that several vendors share matches them all."""
    other_keys: tuple[str, ...] = ()
    """Environment variables that may hold a key beside the usual one."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Environment variables that hold a key, such as `OPENAI_API_KEY`; none if no key is needed."""
        return (f"{self.prefix.upper()}_API_KEY", *self.other_keys) if self.keys_page else ()


VENDORS = (
    Vendor(
        "openai",
        "OpenAI",
        "https://platform.openai.com/api-keys",
        "https://api.openai.com/v1",
        "openai/gpt-5.6-terra",
        limit_field="max_completion_tokens",
        cheap="openai/gpt-5.6-luna",
        transcriber="openai/gpt-4o-mini-transcribe",
        key_shape=r"sk-(?!ant-|or-|admin-)[\w-]{20,}",
    ),
    Vendor(
        "anthropic",
        "Anthropic",
        "https://platform.claude.com/settings/keys",
        model="anthropic/claude-sonnet-5-5",
        cheap="anthropic/claude-haiku-5-5",
        key_shape=r"sk-ant-(?!admin)[\w-]{20,}",
    ),
    Vendor(
        "gemini",
        "Google Gemini",
        "https://aistudio.google.com/apikey",
        other_keys=("GOOGLE_API_KEY",),
        model="gemini/gemini-3.8-flash",
        cheap="gemini/gemini-3.8-flash",
        key_shape=r"AIza[\w-]{30,}|AQ\.[\w-]{30,}",
    ),
    Vendor(
        "openrouter",
        "OpenRouter",
        "https://openrouter.ai/settings/keys",
        "https://openrouter.ai/api/v1",
        "openrouter/openai/gpt-5.6-terra",
        cheap="openrouter/openai/gpt-5.6-luna",
        key_shape=r"sk-or-[\w-]{20,}",
    ),
    Vendor(
        "groq",
        "Groq",
        "https://console.groq.com/keys",
        "https://api.groq.com/openai/v1",
        "groq/openai/gpt-oss-120b",
        cheap="groq/openai/gpt-oss-20b",
        transcriber="groq/whisper-large-v3-turbo",
        key_shape=r"gsk_\w{20,}",
    ),
    Vendor(
        "deepseek",
        "DeepSeek",
        "https://platform.deepseek.com/api_keys",
        "https://api.deepseek.com/v1",
        "deepseek/deepseek-v4-pro",
        cheap="deepseek/deepseek-v4-flash",
        key_shape=r"sk-[0-9a-f]{32}",
    ),
    Vendor(
        "mistral",
        "Mistral",
        "https://console.mistral.ai/api-keys",
        "https://api.mistral.ai/v1",
        "mistral/mistral-large-latest",
        short_call_ids=True,
        cheap="mistral/mistral-small-latest",
        transcriber="mistral/voxtral-mini-latest",
        key_shape=r"\w{32}",
    ),
    Vendor(
        "xai",
        "xAI",
        "https://console.x.ai",
        "https://api.x.ai/v1",
        "xai/grok-4.7",
        key_shape=r"xai-\w{20,}",
    ),
    Vendor("ollama", "Ollama", base_url="http://127.0.0.1:11434", host_variable="OLLAMA_HOST"),
    Vendor("vllm", "vLLM", base_url="http://127.0.0.1:8000"),
    Vendor("lm_studio", "LM Studio", base_url="http://127.0.0.1:1234"),
    Vendor("llamacpp", "llama.cpp", base_url="http://127.0.0.1:8080"),
    Vendor("jan", "Jan", base_url="http://127.0.0.1:1337"),
    Vendor("whisper", "Whisper server", base_url="http://127.0.0.1:8000"),
)
"""In the order in which `auto` looks for keys."""
ALIASES = {"ollama_chat": "ollama", "hosted_vllm": "vllm"}
"""Other prefixes of the same servers."""
LOCAL_SERVERS = tuple(known for known in VENDORS if not known.keys and known.prefix != "whisper")
"""For conversations, in the order in which `auto` prefers them."""
TRANSCRIBING_SERVERS = ("whisper", "vllm", "lm_studio", "llamacpp", "jan")
"""Prefixes of servers that may have a model for recordings, in the order in which they are proposed."""
LOOPBACK = ("localhost", "127.0.0.1", "::1")

# fmt: off
NATIVE = frozenset({
    "anthropic", "anthropic_text", "azure", "azure_ai", "bedrock", "bedrock_converse", "bedrock_mantle",
    "chatgpt", "clarifai", "cloudflare", "cohere", "cohere_chat", "databricks", "gemini", "github_copilot",
    "huggingface", "nlp_cloud", "oci", "palm", "petals", "predibase", "replicate", "sagemaker",
    "sagemaker_chat", "snowflake", "triton", "vertex_ai", "vertex_ai_beta", "watsonx", "watsonx_text",
})
# fmt: on
"""Prefixes with their own protocol; setting a `base_url` does not make them speak OpenAI's."""


def split_model(model: str) -> tuple[str, str]:
    """Split a model into prefix and name, by litellm's convention; a bare name means OpenAI."""
    prefix, slash, name = model.partition("/")
    return (prefix, name) if slash else ("openai", model)


def cheap_model_beside(primary: str, providers: Mapping[str, ProviderSettings]) -> str | None:
    """The cheap model of the same provider and key; None if it has none or its address is configured."""
    prefix, _ = split_model(primary)
    settings = providers.get(prefix)
    return None if settings is not None and settings.base_url is not None else vendor(prefix).cheap


def is_enabled(model: str, providers: Mapping[str, ProviderSettings]) -> bool:
    """Whether the model's provider may be asked."""
    return providers.get(split_model(model)[0], ProviderSettings()).enabled


def default_model(prefix: str, providers: Mapping[str, ProviderSettings]) -> str | None:
    """The model of a provider for those who name none, with its prefix; None if there is none."""
    name = providers.get(prefix, ProviderSettings()).default_model
    return vendor(prefix).model if name is None else name if name.startswith(f"{prefix}/") else f"{prefix}/{name}"


def vendor(prefix: str) -> Vendor:
    """The entry for a prefix; an empty entry if it is unknown."""
    found = next((known for known in VENDORS if known.prefix == ALIASES.get(prefix, prefix)), Vendor(prefix, prefix))
    return replace(found, prefix=prefix)


CountedPrompt: TypeAlias = tuple[tuple[PromptMessage, ...], int, int]
"""The messages of a prompt, its tokens by our estimate, and as its server counted them."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One provider as configured; `base_url` is None for its public address."""

    vendor: Vendor
    api_key: SecretStr | None = None
    base_url: str | None = None
    refusals: Refusals = field(default_factory=Refusals, compare=False, repr=False)
    """The refusals of its models; shared by all endpoints of a gateway."""
    window: int | None = None
    """Tokens of context, as the owner set them."""
    thinks_first: set[str] = field(default_factory=set, compare=False, repr=False)
    """Sources of models that are known to begin by thinking without saying so."""
    counts: dict[str, CountedPrompt] = field(default_factory=dict, compare=False, repr=False)
    """The last prompt of each source."""
    by_responses: bool = False
    """Whether the owner chose the Responses API."""
    windows: dict[str, int] = field(default_factory=dict, compare=False, repr=False)
    """Tokens of context by model, as far as servers have told them; shared like the refusals."""

    @property
    def key(self) -> str | None:
        """The plain key; only for requests."""
        return self.api_key.get_secret_value() if self.api_key else None

    @property
    def address(self) -> str:
        """Where requests go; empty if only litellm knows."""
        return self.base_url or self.vendor.base_url or ""

    def source(self, model: str) -> str:
        """Tells this provider, address, key and model from all others; a digest, which doesn't tell the key."""
        place = dumps([self.vendor.prefix, self.address, model])
        return hmac.new((self.key or "").encode(), place.encode(), sha256).hexdigest()

    @property
    def speaks_openai(self) -> bool:
        """Whether it speaks the OpenAI protocol."""
        return self.vendor.prefix not in NATIVE and bool(self.address)

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine."""
        return urlsplit(self.address).hostname in LOOPBACK

    @property
    def is_ollama(self) -> bool:
        """Whether Ollama is expected there, by either of its prefixes."""
        return ALIASES.get(self.vendor.prefix, self.vendor.prefix) == "ollama"

    @property
    def root(self) -> str:
        """The address without the path of OpenAI's protocol."""
        return self.address.removesuffix("/").removesuffix("/v1")

    @property
    def lacks_key(self) -> bool:
        """Whether the public address needs a key and none is set."""
        return bool(self.vendor.keys) and self.api_key is None and self.base_url is None


def endpoint_of(prefix: str, providers: Mapping[str, ProviderSettings], environ: Mapping[str, str]) -> Endpoint:
    """The endpoint for the models of one prefix."""
    entry = vendor(prefix)
    settings = providers.get(prefix) or providers.get(ALIASES.get(prefix, prefix), ProviderSettings())
    base_url = settings.base_url or _base_url_of(entry, environ)
    key, by_responses = _configured_key(entry, settings, environ), settings.api == "responses"
    return Endpoint(entry, key, base_url, window=settings.context_window, by_responses=by_responses)


def _configured_key(entry: Vendor, settings: ProviderSettings, environ: Mapping[str, str]) -> SecretStr | None:
    if settings.api_key and settings.api_key.get_secret_value():
        return settings.api_key
    found = next((environ[name] for name in entry.keys if environ.get(name)), None)
    return SecretStr(found) if found else None


def _base_url_of(entry: Vendor, environ: Mapping[str, str]) -> str | None:
    if host := environ.get(entry.host_variable):
        return host_url(host)
    prefix = entry.prefix.upper()
    return environ.get(f"{prefix}_BASE_URL") or environ.get(f"{prefix}_API_BASE") or None


def host_url(host: str) -> str:
    """The URL for an `OLLAMA_HOST` value, in any form that Ollama accepts."""
    scheme, _, rest = host.strip().rpartition("://")
    name, _, port = rest.rstrip("/").partition(":")
    name = "127.0.0.1" if name in {"", "0.0.0.0"} else name
    return f"{scheme or 'http'}://{name}:{port or 11434}"


VENDORS_WITH_KEYS = tuple(known for known in VENDORS if known.keys)
_SHORTEST_KEY = 16
_NOT_API_KEYS = {
    r"\d{6,}:[\w-]{30,}": "this is a Telegram bot token; paste it under Telegram, and a model's key here",
    r"xox[a-z]-.+|xapp-.+": "this is a Slack token; paste it under Slack, and a model's key here",
    r"claw_.+": "this is a token of this gateway; paste the key of a model's provider",
    r"sk-(ant-)?admin.+": "this is an admin key, which no model answers to; create an ordinary API key",
}
"""Keys that people paste by mistake, and what to do."""


class UnknownVendor(OwnerMustAct):
    """Several providers have keys like this one, or none; `vendors` are those to choose from."""

    def __init__(self, vendors: tuple[Vendor, ...]) -> None:
        titles = " or ".join(each.title for each in vendors)
        few = len(vendors) < len(VENDORS_WITH_KEYS)
        which = f"this key may be from {titles}" if few else "this key doesn't look like any provider's"
        super().__init__(f"{which}; choose the provider")
        self.vendors = vendors


def vendor_of(key: str, prefix: str = "") -> Vendor:
    """The vendor of a key, or that of `prefix` if it was chosen; raises `OwnerMustAct`, `UnknownVendor` to choose."""
    for shape, advice in _NOT_API_KEYS.items():
        if re.fullmatch(shape, key):
            raise OwnerMustAct(advice)
    if len(key) < _SHORTEST_KEY or len(key.split()) != 1:
        raise OwnerMustAct(
            "this isn't a whole API key; copy it again from the provider's page, without spaces or quotes"
        )
    likely = tuple(known for known in VENDORS_WITH_KEYS if known.key_shape and re.fullmatch(known.key_shape, key))
    if prefix:
        return _check_chosen(prefix, likely)
    if len(likely) != 1:
        raise UnknownVendor(likely or VENDORS_WITH_KEYS)
    return likely[0]


def _check_chosen(prefix: str, likely: tuple[Vendor, ...]) -> Vendor:
    chosen = vendor(prefix)
    if chosen not in VENDORS_WITH_KEYS:
        raise OwnerMustAct(f"{prefix} is not a provider with a key; choose another")
    if len(likely) == 1 and likely[0] != chosen:
        raise OwnerMustAct(f"this key is from {likely[0].title}, not {chosen.title}; create one at {chosen.keys_page}")
    return chosen

"""Sections of config.json that other floors read: models, what is common to all channels, and addresses."""

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from inspect import getsource
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal, cast, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    GetJsonSchemaHandler,
    SecretStr,
    StringConstraints,
    field_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from gateway.domain.errors import raising
from gateway.domain.people.access import AccessMode, GroupMode


def _checked_url(text: str) -> str:
    try:
        address = urlsplit(text)
        known = address.scheme in {"http", "https"} and bool(address.hostname) and address.port != 0
    except ValueError:
        known = False
    if not known or text != "".join(text.split()):
        raise ValueError('must be an address such as "https://api.example.com/v1" or "http://127.0.0.1:8080"')
    return text


HttpUrl = Annotated[str, AfterValidator(_checked_url)]
"""An http or https URL with a host, kept as written."""


_PRIVATE_ENTRY = re.compile(
    r"(?:\[(?P<bracketed>[0-9a-f:./]+)\]|(?P<name>[a-z0-9_.-]+(?:/\d{1,2})?))(?::(?P<port>[1-9]\d{0,4}))?",
    re.IGNORECASE,
)
_PRIVATE_ENTRY_HELP = (
    'use a name, an address or a network, with a port if you can: "nas.lan:8080", "192.168.1.0/24", "[fd00::1]:80"'
)


@dataclass(frozen=True, slots=True)
class PrivatePlace:
    """A host name or a network, on one port or on any."""

    name: str
    network: IPv4Network | IPv6Network | None
    port: int | None

    def covers(self, host: str, address: IPv4Address | IPv6Address | None, port: int) -> bool:
        """Whether it lets this name, or this address of it, be reached there."""
        if self.port not in (None, port):
            return False
        return self.name == host if self.network is None else address is not None and address in self.network


def private_place(text: str) -> PrivatePlace:
    """Raises `ValueError` for what is neither a name nor a network."""
    found = _PRIVATE_ENTRY.fullmatch(text)
    if found is None or int(found["port"] or 1) > 65_535:
        raise ValueError(_PRIVATE_ENTRY_HELP)
    name = (found["bracketed"] or found["name"]).lower().rstrip(".")
    port = int(found["port"]) if found["port"] else None
    if found["bracketed"] or "/" in name or name.rpartition(".")[2].isdigit():
        with raising(ValueError(_PRIVATE_ENTRY_HELP), ValueError):
            return PrivatePlace("", ip_network(name), port)
    return PrivatePlace(name, None, port)


def _checked_entry(text: str) -> str:
    private_place(text)
    return text


PrivateEntry = Annotated[str, AfterValidator(_checked_entry)]
"""An entry as written in the configuration."""


class Described(BaseModel, frozen=True):
    """Describes its keys by their docstrings, read from the source at need: pydantic would read them at each start."""

    @classmethod
    @cache  # finding a class in its source takes 10 ms
    def descriptions(cls) -> Mapping[str, str]:
        """The docstring of each key that has one, those of the bases included."""
        found: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            if issubclass(base, Described):
                [written] = cast("list[ast.ClassDef]", ast.parse(getsource(base)).body)
                for key, about in pairwise(written.body):
                    match key, about:
                        case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                            found[name] = " ".join(text.split())
        return found

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        schema = handler(core)
        keys = handler.resolve_ref_schema(schema)["properties"]
        for name, text in cls.descriptions().items():
            keys[name]["description"] = text
        return schema


class Section(Described, extra="forbid", defer_build=True):
    """Base of every section: frozen; unknown keys are errors. Pydantic builds it at its first use."""


class Params(Section):
    """Sampling parameters; null: not sent, the provider decides."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = 0.7
    """Sampling temperature, 0 to 2; null: the provider's default."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = 1.0
    """Nucleus sampling (top-p), above 0, up to 1; null: the provider's default."""
    max_output_tokens: int = Field(4096, ge=1)
    """The maximum length of an answer, in tokens."""


ThinkingLevel = Literal["off", "low", "medium", "high"]
VoiceReply = Literal["off", "voice", "always"]
"""When an answer is also a voice message, from never to always; "voice": if it answers a recording."""


def voice_reply(chosen: VoiceReply | None, configured: VoiceReply, *, owner: bool) -> VoiceReply:
    """When a chat's answers are also voice messages; only the owner can choose more of them than is configured."""
    if chosen is None or owner:
        return chosen or configured
    return min(chosen, configured, key=get_args(VoiceReply).index)


class CallParams(Params):
    """The sampling parameters of one call, and how much the model is to think; None: as it does by itself."""

    thinking: ThinkingLevel | None = None


class ProviderSettings(Section):
    """How to reach one provider; defaults come from the environment and the provider's usual address."""

    api_key: SecretStr | None = None
    """The provider's key; null reads its usual environment variable."""
    base_url: HttpUrl | None = None
    """Where the provider's API is; null means its public address."""
    default_model: str | None = Field(None, min_length=1)
    """Its model for `auto`, and for an agent that names the provider only."""
    api: Literal["chat", "responses"] = "chat"
    """ "responses" asks its models by OpenAI's Responses API, "chat" only those that take nothing else."""
    enabled: bool = True
    """false: none of its models is asked."""
    context_window: int | None = Field(None, ge=2048)
    """Tokens of context of its models; null: as a local server says, or as they are known."""


ModelName = Annotated[str, StringConstraints(strip_whitespace=True)]


class ModelSettings(Section):
    """Which models answer, in which order, and how to reach them."""

    primary: ModelName = Field("auto", min_length=1)
    """`provider/model`, or "auto" to take what is connected."""
    fallbacks: tuple[ModelName, ...] = ()
    """Models to try, in order, when the primary fails."""
    params: Params = Field(default_factory=Params)
    """Sampling parameters, sent to every model."""
    thinking: ThinkingLevel | None = None
    """How much models think: off, low, medium or high; null: as each does by itself."""
    members: tuple[str, ...] = ()
    """Models that members may choose in their chats with /model; empty: none."""
    providers: Mapping[str, ProviderSettings] = Field(default_factory=dict)
    """Keys and addresses by model prefix, such as `openai` or `ollama`."""
    engine: Literal["auto", "litellm"] = "auto"
    """ "litellm" sends every call through litellm; "auto" only those that need it."""
    embedding: ModelName = "local"
    """The embedding model for search by meaning: "local", "litellm:<provider>/<model>", or "none"."""
    summary: ModelName | None = None
    """The model that writes summaries; null means the primary for conversations that go on, a cheap one of its
    provider for those that have ended."""
    transcription: ModelName | None = None
    """The model that transcribes recordings, such as `openai/whisper-1`; null: none."""
    transcription_fallbacks: tuple[ModelName, ...] = ()
    """Models to try, in order, when the one for transcription fails."""

    @field_validator("embedding")
    @classmethod
    def _is_embedder(cls, embedding: str) -> str:
        if not re.fullmatch(r"local|none|(litellm:)?[^/:\s]+/\S+", embedding):
            raise ValueError(
                'use "local", "none" or a provider\'s model, such as "litellm:openai/text-embedding-3-small"'
            )
        return embedding


def _id_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


PlatformId = Annotated[str, BeforeValidator(_id_as_text, json_schema_input_type=str | int)]
"""The platform's id of a person or chat; a number is converted to a string."""


class ChannelSettings(Section, hide_input_in_errors=True):
    """Base of every channel's settings; patterns match the ids of a person and a group, `IDS` says how they look.

    `VARIABLES` are the environment variables that people expect, and the field that each one sets. `STEPS` says how a
    person gets what they hold, `COPY` is a text that the platform asks for meanwhile.
    """

    TITLE: ClassVar[str] = ""
    STEPS: ClassVar[str] = ""
    COPY: ClassVar[str] = ""

    PERSON: ClassVar[str] = ".+"
    GROUP: ClassVar[str] = ".+"
    IDS: ClassVar[str] = ""
    VARIABLES: ClassVar[Mapping[str, str]] = MappingProxyType({})

    enabled: bool = True
    """false turns the channel off."""
    access: AccessMode = "allowlist"
    """The people who get answers: owner, allowlist, pairing or open."""
    allow: tuple[PlatformId, ...] = ()
    """Allow list: platform ids of people and groups; "*" allows anyone."""
    groups: GroupMode = "mention"
    """In groups: "mention" answers what names or replies to the agent, "all" everything, "off" nothing."""

    @field_validator("allow")
    @classmethod
    def _are_ids(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        for number, id in enumerate(allow, start=1):
            if id != "*" and not re.fullmatch(f"{cls.PERSON}|{cls.GROUP}", id):
                raise ValueError(f"entry {number} is not an id; {cls.IDS}")
        return allow

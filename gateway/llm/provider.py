"""A provider: one attempt at one model, without retries, fallbacks or prices; the choice of a file of `providers/`."""

import re
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Annotated, Any, Literal, Protocol, TypeAlias, TypeVar

from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    WrapValidator,
    model_validator,
)

from gateway.domain.conversation.model import Prompt, ProviderFields, TextDelta, ThinkingDelta, ToolCall, Usage
from gateway.domain.settings import CallParams, ProviderSettings
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.vendors import Endpoint, Refusals, endpoint_of, is_enabled, split_model

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Something arrived that adds nothing to the answer; the connection is alive."""


@dataclass(frozen=True, slots=True)
class ProviderReply:
    """The whole answer. `usage` is None if the provider reported none; `finish` is the provider's finish reason."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    finish: str = "stop"
    fields: ProviderFields | None = None
    thought: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ThinkingEnded:
    """All text so far was thinking, though nothing said so; the answer begins now."""


ProviderEvent: TypeAlias = TextDelta | ThinkingDelta | KeepAlive | ThinkingEnded | ProviderReply
"""A `TextDelta` without text: the answer grew by a call, or by something that isn't shown."""
ProviderEvents: TypeAlias = AsyncGenerator[ProviderEvent, None]


def if_sensible(value: Any, validate: Callable[[Any], T]) -> T | None:
    """The value of a field, or None if it is invalid, which must harm neither the answer nor the accounts."""
    with suppress(ValidationError):
        return validate(value)
    return None


_NO_WORDS = re.compile(
    r"(\s|[.,…!♪♫-]|\[[^\]]*\]|\([^()]*\)|\*[^*]*\*)*|.{0,60}\b(amara\.org|dimatorzok)\b.{0,40}"
    r"|thank(s| you)( so much| very much)? for watching\W*|ご視聴ありがとうございました\W*",
    re.IGNORECASE,
)
"""Marks of sounds, as in "[BLANK_AUDIO]", and what Whisper hears in silence: the ends of films that taught it."""


def _joined(told: object) -> str:
    """The words of a recording, which may come in parts; none for marks of silence."""
    parts = [part.get("text") for part in told if isinstance(part, dict)] if isinstance(told, list) else [told]
    words = " ".join(part.strip() for part in parts if isinstance(part, str))
    return "" if _NO_WORDS.fullmatch(words) else words


_Tokens: TypeAlias = Annotated[int | None, Field(ge=0), WrapValidator(if_sensible)]
_WORDS = AliasChoices("text", "transcript", "transcription", AliasPath("segments", "segments"), "segments")
_SECONDS = AliasChoices(AliasPath("usage", "seconds"), AliasPath("usage", "prompt_audio_seconds"), "duration")


class Transcription(BaseModel):
    """The text of a recording, "" without speech, as services answer; few tell its length, some tokens instead."""

    text: Annotated[str, BeforeValidator(_joined)] = Field(validation_alias=_WORDS)
    seconds: Annotated[float | None, Field(ge=0), WrapValidator(if_sensible)] = Field(None, validation_alias=_SECONDS)
    input_tokens: _Tokens = Field(None, validation_alias=AliasPath("usage", "input_tokens"))
    output_tokens: _Tokens = Field(None, validation_alias=AliasPath("usage", "output_tokens"))

    @model_validator(mode="before")
    @classmethod
    def _of_parts(cls, told: Any) -> Any:
        """Without null as the text: the parts count then, or there is no speech."""
        given = {name: value for name, value in told.items() if value is not None} if isinstance(told, dict) else told
        return {"segments": [], **given} if "text" in told and "text" not in given else given


class Provider(Protocol):
    """One API to reach models. SDKs are imported in `warm` or at the first call, never before.

    A provider without a set-up, or without connections of its own, inherits `warm` and `close`, which do nothing; one
    whose models hear, speak or embed nothing inherits what says so.
    """

    def stream(self, model: str, prompt: Prompt, params: CallParams, /) -> ProviderEvents:
        """Yield deltas, then exactly one `ProviderReply`; raises `ModelError`. Closing it closes the connection."""

    async def warm(self) -> None:
        """Do the slow set-up that the first call would otherwise wait for."""
        return

    async def close(self) -> None:
        """Close every connection; calls in progress fail."""
        return

    async def transcribe(self, model: str, _name: str, _mime: str, _audio: bytes, /) -> Transcription:
        """Transcribe a recording; the MIME type and the extension of the name tell its format. Raises `ModelError`."""
        raise ModelError(ErrorKind.UNKNOWN_MODEL, f"{model} cannot transcribe audio")

    async def speak(self, model: str, _voice: str, _text: str, /) -> bytes:
        """A recording, in Ogg with Opus if the provider can make that, else as it likes. Raises `ModelError`."""
        raise ModelError(ErrorKind.BAD_REQUEST, f"{model} cannot speak; set voice.model, such as to openai/tts-1")

    async def embed(self, model: str, _texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """One vector for each text, in their order, unchecked. Raises `ModelError`."""
        raise ModelError(ErrorKind.BAD_REQUEST, f"{model} cannot embed texts")


_PACKAGE = "gateway.llm.providers"

Engine = Literal["auto", "litellm"]


@dataclass(eq=False)
class Providers:
    """The providers of one configuration, one per prefix, built on first use."""

    settings: Mapping[str, ProviderSettings]
    environ: Mapping[str, str]
    engine: Engine = "auto"
    refusals: Refusals = field(default_factory=Refusals)
    windows: dict[str, int] = field(default_factory=dict)
    _built: dict[str, Provider] = field(default_factory=dict, init=False)

    def of(self, model: str) -> Provider:
        """The provider of a model; raises `ModelError` if it is switched off."""
        prefix, _ = split_model(model)
        if not is_enabled(model, self.settings):
            raise ModelError(ErrorKind.BAD_REQUEST, f"models.providers.{prefix}.enabled is false")
        if prefix not in self._built:
            endpoint = endpoint_of(prefix, self.settings, self.environ)
            endpoint = replace(endpoint, refusals=self.refusals, windows=self.windows)
            module = import_module(f"{_PACKAGE}.{module_of(endpoint, self.engine)}")
            build: Callable[[Endpoint], Provider] = module.build
            self._built[prefix] = build(endpoint)
        return self._built[prefix]

    def secrets(self, model: str) -> tuple[str, ...]:
        """Secrets to mask in texts about this model."""
        key = endpoint_of(split_model(model)[0], self.settings, self.environ).key
        return (key,) if key else ()

    async def close(self) -> None:
        """Close every provider that was built."""
        for provider in self._built.values():
            await provider.close()


def module_of(endpoint: Endpoint, engine: Engine = "auto") -> str:
    """The module to use: one named like the prefix, else `openai` if the endpoint speaks it, else `litellm`."""
    prefix = endpoint.vendor.prefix
    if engine == "litellm" and prefix != "guide":
        return "litellm"
    if prefix.isidentifier() and find_spec(f"{_PACKAGE}.{prefix}"):
        return prefix
    return "openai" if endpoint.speaks_openai else "litellm"

"""A provider: one attempt at one model, without retries, fallbacks or prices; the choice of a file of `providers/`."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from pydantic import AliasChoices, BaseModel, Field

from gateway.domain.conversation.model import Prompt, ProviderFields, TextDelta, ThinkingDelta, ToolCall, Usage
from gateway.domain.settings import CallParams, ProviderSettings
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.vendors import Endpoint, Refusals, endpoint_of, is_enabled, split_model


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


class Provider(Protocol):
    """One API to reach models. SDKs are imported in `warm` or at the first call, never before.

    A provider without a set-up, or without connections of its own, inherits `warm` and `close`, which do nothing.
    """

    def stream(self, model: str, prompt: Prompt, params: CallParams, /) -> ProviderEvents:
        """Yield deltas, then exactly one `ProviderReply`; raises `ModelError`. Closing it closes the connection."""

    async def warm(self) -> None:
        """Do the slow set-up that the first call would otherwise wait for."""
        return

    async def close(self) -> None:
        """Close every connection; calls in progress fail."""
        return


class _AudioUsage(BaseModel):
    seconds: float | None = Field(None, validation_alias=AliasChoices("seconds", "prompt_audio_seconds"))
    input_tokens: int | None = None
    output_tokens: int | None = None


class Transcription(BaseModel):
    """The text of a recording, as services answer; few tell its length, and some tokens instead."""

    text: str
    duration: float | None = None
    usage: _AudioUsage | None = None


@runtime_checkable
class Transcriber(Protocol):
    """A provider whose models transcribe audio."""

    async def transcribe(self, model: str, name: str, mime: str, audio: bytes, /) -> Transcription:
        """Transcribe a recording; `mime` and the extension of `name` tell its format. Raises `ModelError`."""


@runtime_checkable
class Speaker(Protocol):
    """A provider whose models read texts aloud."""

    async def speak(self, model: str, voice: str, text: str, /) -> bytes:
        """A recording, in Ogg with Opus if the provider can make that, else as it likes. Raises `ModelError`."""


@runtime_checkable
class VectorProvider(Protocol):
    """A provider whose models embed texts."""

    async def embed(self, model: str, texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """One vector for each text, in their order, unchecked. Raises `ModelError`."""


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

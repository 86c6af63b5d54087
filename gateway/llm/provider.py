"""A provider: one attempt at one model, without retries, fallbacks or prices."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from gateway.domain.conversation.model import Prompt, TextDelta, ToolCall, Usage
from gateway.domain.settings import Params


@dataclass(frozen=True, slots=True)
class KeepAlive:
    """Something arrived that is no part of an answer; the connection is alive."""


@dataclass(frozen=True, slots=True)
class ProviderReply:
    """The whole answer. `usage` is None if the provider reported none; `finish` is the provider's finish reason."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    finish: str = "stop"


ProviderEvent: TypeAlias = TextDelta | KeepAlive | ProviderReply
"""A `TextDelta` without text: the answer grew by hidden reasoning, or by a call."""


class Provider(Protocol):
    """One API to reach models. SDKs are imported in `warm` or at the first call, never before."""

    def stream(self, model: str, prompt: Prompt, params: Params, /) -> AsyncGenerator[ProviderEvent, None]:
        """Yield deltas, then exactly one `ProviderReply`; raises `ModelError`. Closing it closes the connection."""

    async def warm(self) -> None:
        """Do the slow set-up that the first call would otherwise wait for."""

    async def close(self) -> None:
        """Close every connection; calls in progress fail."""


@runtime_checkable
class Transcriber(Protocol):
    """A provider whose models transcribe audio."""

    async def transcribe(self, model: str, name: str, audio: bytes, /) -> str:
        """The text of an audio file; the extension of `name` tells its format. Raises `ModelError`."""


@runtime_checkable
class VectorProvider(Protocol):
    """A provider whose models embed texts."""

    async def embed(self, model: str, texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """One vector for each text, in their order, as it came. Raises `ModelError`."""

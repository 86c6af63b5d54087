"""A provider: one try of one model, without retry, fallback or prices."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from gateway.domain.model import Prompt, TextDelta, ToolCall, Usage
from gateway.domain.settings import Params


@dataclass(frozen=True, slots=True)
class Alive:
    """Something arrived that shows nothing yet (hidden reasoning, a keep-alive): the try is not silent."""


@dataclass(frozen=True, slots=True)
class ProviderReply:
    """The whole answer. `usage` is None where the provider told none; `finish` is its own word for why it ended."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    usage: Usage | None = None
    finish: str = "stop"


ProviderEvent: TypeAlias = TextDelta | Alive | ProviderReply


class Provider(Protocol):
    """One way to speak to models. SDKs are imported in `warm` or at the first call, never before."""

    def stream(self, model: str, prompt: Prompt, params: Params, /) -> AsyncGenerator[ProviderEvent, None]:
        """Deltas, then exactly one `ProviderReply`; raises `ModelError`. Closing it closes the connection."""
        ...

    async def warm(self) -> None:
        """Do now what the first call would have to wait for."""
        ...

    async def close(self) -> None:
        """Let go of every connection; calls under way fail."""
        ...


@runtime_checkable
class Hears(Protocol):
    """A provider whose models write down what is said."""

    async def transcribe(self, model: str, name: str, audio: bytes, /) -> str:
        """The words in a sound file; `name` tells its format. Raises `ModelError`."""
        ...

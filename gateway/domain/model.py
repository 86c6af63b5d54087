"""The model as the loop sees it: a prompt in, a stream of events out."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from gateway.domain.errors import SupaclawError
from gateway.domain.json import JsonObject


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call the model asks for; `arguments` is the JSON text as the model wrote it, possibly malformed."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as shown to the model; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """Standing instructions."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture shown to a model, already small enough."""

    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UserMessage:
    """Something a person (or an event) said; a model without eyes is shown the text only."""

    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """What the model said, with the calls it asked for."""

    text: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The result of one call."""

    call_id: str
    text: str


PromptMessage: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to a model; every `ToolMessage` follows the `AssistantMessage` that made its call."""

    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and price of one call; `cost_usd` is 0 where no price is known."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed try: which model, what kind of error, in which words."""

    model: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The try that streamed so far failed; forget its text, the same prompt is being tried again."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole answer of one call; always the last event. `failed` lists the tries before it, in order."""

    text: str
    calls: tuple[ToolCall, ...]
    usage: Usage
    model: str
    latency_ms: int
    failed: tuple[Attempt, ...] = ()


ModelEvent: TypeAlias = TextDelta | Restarted | Reply


class ModelsExhausted(SupaclawError):
    """Every model failed; the text is the message for the user: models in order, each error, what to do.

    `overflow` says that a shorter prompt may help: to one of them at least it was too long.
    """

    def __init__(self, message: str, attempts: tuple[Attempt, ...], *, overflow: bool = False) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.overflow = overflow


class Model(Protocol):
    """Anything that answers prompts; retry and fallback are its own business."""

    def stream(self, prompt: Prompt) -> AsyncIterator[ModelEvent]:
        """Deltas, perhaps restarts, then exactly one `Reply`; raises `ModelsExhausted`."""
        ...

"""The model as the loop sees it: a prompt in, a stream of events out."""

import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol, TypeAlias

from gateway.domain.errors import SupaclawError
from gateway.domain.json import JsonObject, json_or_text
from gateway.domain.principals import Label
from gateway.domain.text.tokens import estimate

TOOL_TOKENS = 8
"""Tokens of a tool, or of a call, besides its texts."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call requested by the model; `arguments` is its raw JSON, possibly malformed.

    `written`: it came as text, which the model may have copied from somewhere.
    """

    id: str
    name: str
    arguments: str
    written: bool = False

    @property
    def valid_arguments(self) -> str:
        """A JSON object in any case: providers refuse a whole prompt because of one malformed call."""
        if isinstance(json_or_text(self.arguments), dict):
            return self.arguments
        return json.dumps({"malformed": self.arguments}) if self.arguments.strip() else "{}"

    @property
    def canonical(self) -> str:
        """The arguments, the same text however their JSON is written."""
        with suppress(ValueError, RecursionError):
            return json.dumps(json.loads(self.arguments), sort_keys=True)
        return self.arguments


@dataclass(frozen=True, slots=True)
class ProviderFields:
    """Fields of a reply that only its provider understands and may want back, as JSON objects; never shown.

    `source` stands for provider, address, key and model; nobody else gets them.
    """

    source: str
    message: str = field(repr=False)
    calls: tuple[str, ...] = field(default=(), repr=False)
    """Those of each call, in order."""

    @property
    def tokens(self) -> int:
        """Their tokens in a prompt, roughly."""
        return sum(len(text.encode()) // 3 for text in (self.message, *self.calls))


@dataclass(frozen=True)
class ToolSpec:
    """A tool as shown to the model; `parameters` is a JSON Schema object, `label` is how far its words are trusted."""

    name: str
    description: str
    parameters: JsonObject
    label: Label

    @cached_property
    def tokens(self) -> int:
        """The tokens that it adds to every request, estimated."""
        words = (self.name, self.description, json.dumps(self.parameters, ensure_ascii=False))
        return TOOL_TOKENS + estimate(" ".join(words))


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of the standing instructions; `label` is how far its text is trusted, `name` names it if it is left out.

    Of a part from a file `path` and `sha256` are known; a `shared` one is the owner's in every person's run.
    """

    text: str
    label: Label
    name: str = ""
    path: str = ""
    sha256: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class SystemMessage:
    """Standing instructions."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image for a model, already scaled down."""

    mime: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UserMessage:
    """A message from a person or an event; models without vision get the text only."""

    text: str
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    """The model's text, and the calls it requested."""

    text: str
    calls: tuple[ToolCall, ...] = ()
    fields: ProviderFields | None = None


@dataclass(frozen=True, slots=True)
class ToolMessage:
    """The result of one call; models without vision get the text only."""

    call_id: str
    text: str
    images: tuple[Image, ...] = ()


PromptMessage: TypeAlias = SystemMessage | UserMessage | AssistantMessage | ToolMessage


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request to a model; every `ToolMessage` follows the `AssistantMessage` that made its call.

    `must_call` and `answer_format` are those of `ClientOptions`.
    """

    messages: tuple[PromptMessage, ...]
    tools: tuple[ToolSpec, ...] = ()
    must_call: str | None = None
    answer_format: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens and cost of one call; `cost_usd` is 0 if the price is unknown. The output includes the thinking."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float = 0.0
    thinking_tokens: int = 0
    thinking_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Highest:
    """The most that one call may take: US dollars of a model with a price, tokens of one without."""

    usd: float = 0.0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One failed attempt: the model, the kind of error and its message."""

    model: str
    error: str
    message: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The next piece of the model's thinking, which is no part of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """The model's thinking before an answer, as far as its provider shows that, and how long it took."""

    text: str = field(repr=False)
    milliseconds: int


@dataclass(frozen=True, slots=True)
class Restarted:
    """The attempt that was streaming failed; discard its text, the same prompt is retried."""

    attempt: Attempt


@dataclass(frozen=True, slots=True)
class Waiting:
    """No model can be asked now; the next attempt comes after so many seconds. `attempt` is the last one."""

    attempt: Attempt
    seconds: float


@dataclass(frozen=True, slots=True)
class Reply:
    """The whole answer of one call; always the last event. `failed` lists the attempts before it, in order."""

    text: str
    calls: tuple[ToolCall, ...]
    usage: Usage
    model: str
    latency_ms: int
    failed: tuple[Attempt, ...] = ()
    fields: ProviderFields | None = None
    thought: Thought | None = None


ModelEvent: TypeAlias = TextDelta | ThinkingDelta | Restarted | Waiting | Reply


class ModelsExhausted(SupaclawError):
    """Every model failed; the text is the message for the user: the models in order, their errors, what to do.

    `overflow`: the prompt was too long for at least one of them, so a shorter one may work.
    """

    def __init__(self, message: str, attempts: tuple[Attempt, ...], *, overflow: bool = False) -> None:
        super().__init__(message)
        self.attempts = attempts
        self.overflow = overflow


class Model(Protocol):
    """Anything that answers prompts; it handles retries and fallbacks itself."""

    def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        """Yield deltas, restarts and waits, then exactly one `Reply`; raises `ModelsExhausted`."""

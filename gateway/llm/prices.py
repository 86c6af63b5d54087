"""Context windows and prices of models, from litellm's table, read without importing litellm; tokens of a prompt.

The table is 3 MB of JSON for thousands of models; only the requested entries are parsed."""

import json
import mmap
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import assert_never

from pydantic import BaseModel

from gateway.domain.conversation.model import (
    AssistantMessage,
    Highest,
    Prompt,
    PromptMessage,
    SystemMessage,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from gateway.domain.text.tokens import estimate
from gateway.llm.local_servers import ANSWER_SHARE, LOCAL_WINDOW, LocalModel
from gateway.llm.vendors import Endpoint, split_model, vendor

_FILE = "model_prices_and_context_window_backup.json"
_DEFAULT_WINDOW = 128_000


class _Entry(BaseModel):
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    max_tokens: int | None = None
    input_cost_per_token: float | None = None
    output_cost_per_token: float | None = None
    cache_read_input_token_cost: float | None = None
    supports_vision: bool | None = None
    input_cost_per_character: float | None = None
    input_cost_per_second: float | None = None


@dataclass(frozen=True, slots=True)
class Price:
    """One model: its limits in tokens (`output` None: unknown), and USD per token, character spoken or second heard.

    `vision`: whether it takes images; None: unknown.
    """

    window: int
    output: int | None = None
    per_input: float = 0.0
    per_output: float = 0.0
    per_cached: float = 0.0
    vision: bool | None = None
    per_character: float = 0.0
    per_second: float = 0.0

    @property
    def known(self) -> bool:
        """Whether the model has a price."""
        return bool(self.per_input or self.per_output)


class Prices:
    """Looks up each model once; a model that is not in the table costs nothing and gets a default window."""

    def __init__(self, table: Path | None = None) -> None:
        self._table = table
        self._known: dict[str, Price] = {}

    def of(self, model: str) -> Price:
        """The limits and prices of a model; the first lookup takes about a millisecond."""
        if model not in self._known:
            self._known[model] = self._look_up(model)
        return self._known[model]

    def window(self, model: str) -> int:
        """The context window, in tokens."""
        return self.of(model).window

    def learn(self, model: str, found: LocalModel) -> None:
        """Take the limits of a model from its own server; an answer may take a quarter of the context."""
        vision = self.of(model).vision if found.vision is None else found.vision
        self._known[model] = replace(
            self.of(model), window=found.window, output=found.window // ANSWER_SHARE, vision=vision
        )

    def cost(self, model: str, usage: Usage) -> float:
        """The cost of one call in USD; cached tokens are part of the input tokens."""
        price = self.of(model)
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        read = fresh * price.per_input + usage.cached_tokens * price.per_cached
        return read + usage.output_tokens * price.per_output

    def speech(self, model: str, text: str) -> float:
        """The cost of reading a text aloud in USD, without the sound of models that bill it in tokens."""
        price = self.of(model)
        return len(text) * price.per_character or estimate(text) * price.per_input

    def transcription(self, model: str, usage: Usage, seconds: float) -> float:
        """The cost of transcribing a recording in USD: by its tokens if the service told them, else by its length."""
        return self.cost(model, usage) or seconds * self.of(model).per_second

    def highest(self, model: str, tokens: int, longest: int) -> Highest:
        """The most that an answer of up to `longest` tokens to a prompt of so many may cost."""
        price = self.of(model)
        longest = min(longest, price.output or longest)
        if not price.known:
            return Highest(tokens=tokens + longest)
        return Highest(usd=tokens * price.per_input + longest * price.per_output)

    def _look_up(self, model: str) -> Price:
        is_local = Endpoint(vendor(split_model(model)[0])).is_local
        default = Price(LOCAL_WINDOW if is_local else _DEFAULT_WINDOW)
        table = self._table or table_path()
        if table is None:
            return default
        with table.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            found = next((entry for name in table_keys(model) if (entry := _find(text, name))), None)
        return _price(found, default) if found else default


def table_path() -> Path | None:
    """The path of litellm's table; None if litellm is not installed."""
    spec = find_spec("litellm")
    return Path(spec.origin).parent / _FILE if spec and spec.origin else None


def table_keys(model: str) -> list[str]:
    """The keys under which the table may list a model, best first."""
    prefix, name = split_model(model)
    if prefix == "openrouter":
        bare = name.rpartition("/")[2].partition(":")[0]
        return [model, name, bare, bare.replace(".", "-")]
    return [model, name] if prefix in {"openai", "anthropic"} else [model]


def _find(text: mmap.mmap, name: str) -> _Entry | None:
    start = text.find(f"\n    {json.dumps(name)}: {{".encode())
    end = text.find(b"\n    }", start)
    if start < 0 or end < 0:
        return None
    body = text[text.find(b"{", start) : end + len(b"\n    }")]
    return _Entry.model_validate_json(body)


def _price(entry: _Entry, default: Price) -> Price:
    per_input = entry.input_cost_per_token or 0.0
    cached = entry.cache_read_input_token_cost
    return Price(
        window=entry.max_input_tokens or entry.max_tokens or default.window,
        output=entry.max_output_tokens,
        per_input=per_input,
        per_output=entry.output_cost_per_token or 0.0,
        per_cached=per_input if cached is None else cached,
        vision=entry.supports_vision,
        per_character=entry.input_cost_per_character or 0.0,
        per_second=entry.input_cost_per_second or 0.0,
    )


_PER_MESSAGE = 4
_PER_TOOL = 8
_PER_IMAGE = 1_100


def estimate_prompt(prompt: Prompt) -> int:
    """The tokens of a whole request, tools included."""
    return sum(map(_message, prompt.messages)) + sum(map(estimate_tool, prompt.tools))


def estimate_tool(spec: ToolSpec) -> int:
    """The tokens that one tool adds to every request."""
    return _PER_TOOL + estimate(f"{spec.name} {spec.description} {json.dumps(spec.parameters, ensure_ascii=False)}")


def _message(message: PromptMessage) -> int:
    match message:
        case SystemMessage(text):
            return _PER_MESSAGE + estimate(text)
        case UserMessage(text, images) | ToolMessage(_, text, images):
            return _PER_MESSAGE + estimate(text) + _PER_IMAGE * len(images)
        case AssistantMessage(text, calls, fields):
            made = sum(_PER_TOOL + estimate(call.name) + estimate(call.arguments) for call in calls)
            return _PER_MESSAGE + estimate(text) + made + (fields.tokens if fields else 0)
        case unreachable:
            assert_never(unreachable)

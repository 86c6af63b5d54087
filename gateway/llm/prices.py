"""Context windows and prices of models, from litellm's table, read without importing litellm; tokens of a prompt.

The table is 3 MB of JSON for thousands of models; only the requested entries are parsed."""

import json
import mmap
import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import assert_never

from pydantic import AliasChoices, BaseModel, Field

from gateway.domain.conversation.model import (
    TOOL_TOKENS,
    AssistantMessage,
    Highest,
    Prompt,
    PromptMessage,
    SystemMessage,
    ToolMessage,
    Usage,
    UserMessage,
)
from gateway.domain.text.tokens import estimate
from gateway.llm.local_servers import ANSWER_SHARE, LOCAL_WINDOW, LocalModel
from gateway.llm.vendors import Endpoint, split_model, vendor

_FILE = "model_prices_and_context_window_backup.json"
_DEFAULT_WINDOW = 128_000


class Price(BaseModel, frozen=True):
    """A model's entry: its limits in tokens (0, None: unknown), and USD per token, character spoken or second heard.

    `vision`: whether it takes images; None: unknown. `per_cached` is None where a cached token costs like another.
    """

    window: int = Field(0, validation_alias=AliasChoices("max_input_tokens", "max_tokens"))
    output: int | None = Field(None, validation_alias="max_output_tokens")
    per_input: float = Field(0.0, validation_alias="input_cost_per_token")
    per_output: float = Field(0.0, validation_alias="output_cost_per_token")
    per_cached: float | None = Field(None, validation_alias="cache_read_input_token_cost")
    vision: bool | None = Field(None, validation_alias="supports_vision")
    per_character: float = Field(0.0, validation_alias="input_cost_per_character")
    per_second: float = Field(0.0, validation_alias="input_cost_per_second")


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

    def learn(self, model: str, found: LocalModel) -> None:
        """Take the limits of a model from its own server; an answer may take a quarter of the context."""
        vision = self.of(model).vision if found.vision is None else found.vision
        limits = {"window": found.window, "output": found.window // ANSWER_SHARE, "vision": vision}
        self._known[model] = self.of(model).model_copy(update=limits)

    def cost(self, model: str, usage: Usage) -> float:
        """The cost of one call in USD; cached tokens are part of the input tokens."""
        price = self.of(model)
        fresh = max(0, usage.input_tokens - usage.cached_tokens)
        per_cached = price.per_input if price.per_cached is None else price.per_cached
        return fresh * price.per_input + usage.cached_tokens * per_cached + usage.output_tokens * price.per_output

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
        if not (price.per_input or price.per_output):
            return Highest(tokens=tokens + longest)
        return Highest(usd=tokens * price.per_input + longest * price.per_output)

    def _look_up(self, model: str) -> Price:
        found = None
        if table := self._table or table_path():
            with table.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
                found = next((entry for name in table_keys(model) if (entry := _find(text, name))), None)
        if found and found.window:
            return found
        is_local = Endpoint(vendor(split_model(model)[0])).is_local
        return (found or Price()).model_copy(update={"window": LOCAL_WINDOW if is_local else _DEFAULT_WINDOW})


_ENTRY = re.compile(rb'\n    "([^"\n]+)": \{\n(.*?)\n    \}', re.DOTALL)
_OF_CHATS = re.compile(rb'"litellm_provider": "(\w+)".*"mode": "chat"', re.DOTALL)


@lru_cache(maxsize=8)  # a look at the whole table takes a tenth of a second
def known_models(providers: frozenset[str]) -> Sequence[str]:
    """The chat models of these providers in the table, as `provider/model`, sorted."""
    if not (table := table_path()):
        return []
    found = set[str]()
    with table.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for entry in _ENTRY.finditer(text):
            if (of := _OF_CHATS.search(entry[2])) and (provider := of[1].decode()) in providers:
                found.add(f"{provider}/{entry[1].decode().removeprefix(f'{provider}/')}")
    return sorted(found)


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


def _find(text: mmap.mmap, name: str) -> Price | None:
    start = text.find(f"\n    {json.dumps(name)}: {{".encode())
    end = text.find(b"\n    }", start)
    if start < 0 or end < 0:
        return None
    body = text[text.find(b"{", start) : end + len(b"\n    }")]
    return Price.model_validate({name: told for name, told in json.loads(body).items() if told is not None})


_PER_MESSAGE = 4
_PER_IMAGE = 1_100


def estimate_prompt(prompt: Prompt) -> int:
    """The tokens of a whole request, tools included."""
    return sum(map(_message, prompt.messages)) + sum(spec.tokens for spec in prompt.tools)


def _message(message: PromptMessage) -> int:
    match message:
        case SystemMessage(text):
            return _PER_MESSAGE + estimate(text)
        case UserMessage(text, images) | ToolMessage(_, text, images):
            return _PER_MESSAGE + estimate(text) + _PER_IMAGE * len(images)
        case AssistantMessage(text, calls, fields):
            made = sum(TOOL_TOKENS + estimate(call.name) + estimate(call.arguments) for call in calls)
            return _PER_MESSAGE + estimate(text) + made + (fields.tokens if fields else 0)
        case unreachable:
            assert_never(unreachable)

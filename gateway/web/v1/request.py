"""A chat completion request: what is supported, what is ignored, and what is refused in OpenAI's words."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from gateway.domain.inbound import Earlier
from gateway.web.errors import Refused
from gateway.web.v1.parts import InlineFile, files_of, text_of

IGNORED = frozenset(
    {
        *("temperature", "top_p", "max_tokens", "max_completion_tokens", "presence_penalty", "frequency_penalty"),
        *("seed", "user", "metadata", "store", "service_tier", "reasoning_effort", "verbosity", "parallel_tool_calls"),
        *("prompt_cache_key", "prompt_cache_retention", "safety_identifier"),
    }
)
"""Fields without effect here: sampling and budgets are the operator's, in config.json."""

HARMLESS: dict[str, Sequence[JsonValue]] = {
    "n": [1],
    "logprobs": [False],
    "response_format": [{"type": "text"}],
    "modalities": [["text"]],
    "tools": [[]],
    "functions": [[]],
    "tool_choice": ["none", "auto"],
    "function_call": ["none", "auto"],
    "logit_bias": [{}],
    "stop": [[]],
    "top_logprobs": [0],
    "audio": [],
    "prediction": [],
    "web_search_options": [],
}
"""Fields that are refused, except with these values, which change nothing."""

READ = frozenset({"model", "messages", "stream", "stream_options"})


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A request that can be served: what is said now, and what was said before; only what is new brings files."""

    model: str
    text: str
    files: tuple[InlineFile, ...]
    earlier: tuple[Earlier, ...]
    stream: bool
    include_usage: bool


def parse(body: bytes, models: Sequence[str]) -> ChatRequest:
    """Raises `Refused`, naming the field."""
    fields = _object(body)
    _refuse_unsupported(fields)
    *earlier, last = _messages(fields.get("messages"))
    if last.role != "user":
        raise _invalid("messages", "The last message must be the user's: it is what gets an answer.")
    options = fields.get("stream_options") or {}
    return ChatRequest(
        model=_model(fields.get("model"), models),
        text=last.text,
        files=_files(fields.get("messages")),
        earlier=tuple(earlier),
        stream=_flag(fields.get("stream"), "stream"),
        include_usage=isinstance(options, dict) and _flag(options.get("include_usage"), "stream_options.include_usage"),
    )


def _object(body: bytes) -> dict[str, JsonValue]:
    try:
        parsed: JsonValue = json.loads(body)
    except (ValueError, RecursionError):
        raise _invalid(None, "The body is not valid JSON.") from None
    if not isinstance(parsed, dict):
        raise _invalid(None, "The body must be a JSON object.")
    return {name: value for name, value in parsed.items() if value is not None}


def _refuse_unsupported(fields: dict[str, JsonValue]) -> None:
    for name, value in fields.items():
        if name in READ or name in IGNORED or value in HARMLESS.get(name, ()):
            continue
        if name not in HARMLESS:
            raise Refused(400, "unknown_parameter", f"Unrecognized request argument supplied: {name}", param=name)
        supported = ", ".join(json.dumps(value) for value in HARMLESS[name])
        hint = f"; only {supported} is" if supported else ""
        message = f"Unsupported parameter: '{name}' is not supported with this value{hint}."
        raise Refused(400, "unsupported_parameter", message, param=name)


def _model(value: JsonValue, models: Sequence[str]) -> str:
    if not isinstance(value, str) or not value:
        raise _invalid("model", "You must provide a model parameter.")
    if value not in models:
        message = f"The model '{value}' does not exist; GET /v1/models lists them."
        raise Refused(404, "model_not_found", message, param="model")
    return value


def _flag(value: JsonValue, param: str) -> bool:
    if value is not None and not isinstance(value, bool):
        raise _invalid(param, f"'{param}' must be true or false.")
    return bool(value)


def _messages(value: JsonValue) -> list[Earlier]:
    if not isinstance(value, list) or not value:
        raise _invalid("messages", "'messages' must be a list with at least one message.")
    return [_message(item, f"messages[{at}]") for at, item in enumerate(value)]


def _files(value: JsonValue) -> tuple[InlineFile, ...]:
    match value:
        case [*earlier, {"content": content}]:
            return files_of(content, f"messages[{len(earlier)}].content")
        case _:
            return ()


def _message(value: JsonValue, param: str) -> Earlier:
    if not isinstance(value, dict):
        raise _invalid(param, "A message must be an object.")
    for call in ("tool_calls", "function_call"):
        if value.get(call):
            raise Refused(400, "unsupported_value", "Tool calls are not supported.", param=f"{param}.{call}")
    return Earlier(_role(value.get("role"), param), text_of(value.get("content"), f"{param}.content"))


def _role(value: JsonValue, param: str) -> Literal["user", "assistant", "system"]:
    match value:
        case "user" | "assistant" | "system":
            return value
        case "developer":
            return "system"
        case _:
            message = f"Role {json.dumps(value)} is not supported; use system, developer, user or assistant."
            raise Refused(400, "unsupported_value", message, param=f"{param}.role")


def _invalid(param: str | None, message: str) -> Refused:
    return Refused(400, "invalid_value", message, param=param)

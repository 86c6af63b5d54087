"""A chat completion request: what is supported, what is ignored, and what is refused in OpenAI's words."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import JsonValue

from gateway.domain.conversation.inbound import NO_OPTIONS, ClientOptions, Earlier
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.transcript import ToolResult
from gateway.domain.errors import raising
from gateway.domain.json import JsonObject
from gateway.domain.text.texts import storable
from gateway.web.http.errors import Refused
from gateway.web.v1.request_fields import (
    InlineFile,
    call_of,
    choice_of,
    files_of,
    format_of,
    invalid,
    result_of,
    text_of,
    tools_of,
)
from gateway.web.v1.turn import NO_LIMITS, TextLimits, limits_of

ONLY: Mapping[str, Sequence[JsonValue]] = {
    "n": [1],
    "best_of": [1],
    "echo": [False],
    "logprobs": [False, 0],
    "top_logprobs": [0],
    "modalities": [["text"]],
    "audio": [],
    "functions": [[]],
    "function_call": ["none", "auto"],
    "web_search_options": [],
    "background": [False],
    "conversation": [],
    "prompt": [],
    "suffix": [""],
}
"""Fields that would change the answer, with their only supported values. All other fields are accepted."""


CONTINUE = "[Continue your last message from exactly where it ends. Write only what follows.]"
"""The text of a request that ends with the beginning of an answer."""
TRIMMED = "trimmed_call"
"""The name of a call that the client no longer sends."""


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A valid request: the new text, and the `earlier` messages; only new messages have files.

    `results` are of the client's own tools.
    """

    model: str
    text: str
    files: tuple[InlineFile, ...] = ()
    earlier: tuple[Earlier, ...] = ()
    options: ClientOptions = NO_OPTIONS
    results: tuple[ToolResult, ...] = ()
    stream: bool = False
    include_usage: bool = False
    limits: TextLimits = NO_LIMITS


def parse(body: bytes, models: Sequence[str]) -> ChatRequest:
    """Parse a request; raises `Refused`, naming the invalid field."""
    fields = fields_of(body, models)
    messages = instructions_first(fields.get("messages"))
    history, form = _messages(messages), format_of(fields.get("response_format"), "response_format")
    stream_options = fields.get("stream_options") or {}
    usage = stream_options.get("include_usage") if isinstance(stream_options, dict) else None
    request = request_of(fields, history, form, "messages")
    return replace(
        request,
        files=_files(messages) if history[-1].role == "user" else (),
        include_usage=flag(usage, "stream_options.include_usage"),
    )


def parse_prompt(body: bytes, models: Sequence[str]) -> ChatRequest:
    """Parse a completion in the older format, whose prompt is one message; raises `Refused`."""
    fields = fields_of(body, models, but="prompt")
    match fields.get("prompt"):
        case str(prompt) | [str(prompt)] if prompt.strip():
            stream, limits = flag(fields.get("stream"), "stream"), limits_of(fields, fenced=False)
            return ChatRequest(str(fields["model"]), prompt, stream=stream, limits=limits)
        case _:
            raise invalid("prompt", "'prompt' must be one text.")


def fields_of(body: bytes, models: Sequence[str], *, but: str = "") -> dict[str, JsonValue]:
    """The fields of any request; raises `Refused` for an unsupported one other than `but`."""
    with raising(invalid(None, "The body is not valid JSON."), ValueError, RecursionError):
        parsed: JsonValue = json.loads(body)
    if not isinstance(parsed, dict):
        raise invalid(None, "The body must be a JSON object.")
    fields: dict[str, JsonValue] = {name: value for name, value in parsed.items() if value is not None}
    for name, value in fields.items():
        if name != but and value not in ONLY.get(name, [value]):
            supported = ", ".join(json.dumps(each) for each in ONLY[name])
            hint = f"; only {supported} is" if supported else ""
            message = f"Unsupported parameter: '{name}' is not supported with this value{hint}."
            raise Refused(400, "unsupported_parameter", message, param=name)
    _check_model(fields.get("model"), models)
    return fields


def request_of(
    fields: Mapping[str, JsonValue], history: Sequence[Earlier], answer_format: JsonObject | None, param: str
) -> ChatRequest:
    """The request with this history, which `param` holds, still without its files; raises `Refused`."""
    earlier, results, text = _split(history, param)
    tools = tools_of(fields.get("tools"))
    allowed, must_call = choice_of(fields.get("tool_choice"), tools)
    return ChatRequest(
        model=str(fields["model"]),
        text=text,
        earlier=earlier,
        options=ClientOptions(tools if allowed else (), must_call, answer_format),
        results=results,
        stream=flag(fields.get("stream"), "stream"),
        limits=limits_of(fields, fenced=answer_format is not None),
    )


def _split(history: Sequence[Earlier], param: str) -> tuple[tuple[Earlier, ...], tuple[ToolResult, ...], str]:
    """The earlier messages, then the new results of the client's tools and the new text; either may be empty."""
    history = _with_calls(history)
    last = history[-1]
    new = last.text if last.role == "user" else CONTINUE if last.role == "assistant" and not last.calls else None
    before = list(history[:-1] if last.role == "user" else history)
    at = len(before)
    while at and before[at - 1].role == "tool":
        at -= 1
    results = tuple(ToolResult(each.call_id, each.text) for each in before[at:])
    if new is None and not results:
        raise invalid(param, "The last message must be the user's, or a tool's result.")
    return tuple(before[:at]), results, new or ""


def instructions_first(messages: JsonValue) -> JsonValue:
    """The messages, with instructions moved from the end to the beginning: some clients append theirs."""
    items = messages if isinstance(messages, list) else []
    at = len(items)
    while at and isinstance(last := items[at - 1], dict) and last.get("role") in ("system", "developer"):
        at -= 1
    return [*items[at:], *items[:at]] if items else messages


def flag(value: JsonValue, param: str) -> bool:
    """The value of a boolean field, false if it is absent; raises `Refused`."""
    if value is not None and not isinstance(value, bool):
        raise invalid(param, f"'{param}' must be true or false.")
    return bool(value)


def _with_calls(history: Sequence[Earlier]) -> list[Earlier]:
    """The history with a call before each result whose call was trimmed; results alone belong to a session."""
    whole, calls = list[Earlier](), set[str]()
    if all(each.role == "tool" for each in history):
        return list(history)
    for each in history:
        calls |= {call.id for call in each.calls}
        if each.role == "tool" and each.call_id not in calls:
            calls.add(each.call_id)
            whole.append(Earlier("assistant", "", (ToolCall(each.call_id, TRIMMED, "{}"),)))
        whole.append(each)
    return whole


def _check_model(value: JsonValue, models: Sequence[str]) -> None:
    if not isinstance(value, str) or not value:
        raise invalid("model", "You must provide a model parameter.")
    if value not in models:
        message = f"The model '{value}' does not exist; GET /v1/models lists them."
        raise Refused(404, "model_not_found", message, param="model")


def _messages(value: JsonValue) -> list[Earlier]:
    if not isinstance(value, list) or not value:
        raise invalid("messages", "'messages' must be a list with at least one message.")
    return [_message(item, f"messages[{at}]") for at, item in enumerate(value)]


def _files(value: JsonValue) -> tuple[InlineFile, ...]:
    match value:
        case [*earlier, {"content": content}]:
            return files_of(content, f"messages[{len(earlier)}].content")
    return ()


def _message(value: JsonValue, param: str) -> Earlier:
    if not isinstance(value, dict):
        raise invalid(param, "A message must be an object.")
    read = result_of if value.get("role") in ("tool", "function") else text_of
    text = read(value.get("content"), f"{param}.content")
    match value.get("role"):
        case "user":
            return Earlier("user", text)
        case "assistant":
            old = value.get("function_call")
            calls: JsonValue = [{"id": _function_id(old), "function": old}] if old else value.get("tool_calls")
            return Earlier("assistant", text, _calls(calls, param))
        case "system" | "developer":
            return Earlier("system", text)
        case "tool":
            id = value.get("tool_call_id")
            if not isinstance(id, str) or not id:
                raise invalid(f"{param}.tool_call_id", "A result needs the id of its call.")
            return Earlier("tool", text, call_id=storable(id))
        case "function":
            return Earlier("tool", text, call_id=_function_id(value))
        case role:
            message = f"Role {json.dumps(role)} is not supported; use system, developer, user, assistant or tool."
            raise Refused(400, "unsupported_value", message, param=f"{param}.role")


def _function_id(function: JsonValue) -> str:
    """The id of a call of the older format, which has only a name; "" if it has none."""
    name = function.get("name") if isinstance(function, dict) else None
    return f"function_{storable(name)}" if isinstance(name, str) and name else "function"


def _calls(value: JsonValue, param: str) -> tuple[ToolCall, ...]:
    calls = value if isinstance(value, list) else []
    return tuple(call_of(call, f"{param}.tool_calls[{at}]") for at, call in enumerate(calls))

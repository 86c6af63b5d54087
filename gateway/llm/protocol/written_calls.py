"""Tool calls that a model writes as text, in the forms of the open models' chat templates."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import uuid4

from gateway.domain.conversation.model import Prompt, ToolCall, ToolMessage, ToolSpec, UserMessage
from gateway.domain.json import Json, JsonObject

_TAGGED = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>)?", re.DOTALL)
_PREFIXED = re.compile(r"(?:\[TOOL_CALLS\]|<\|python_tag\|>)\s*(.*)", re.DOTALL)
_NAMED = re.compile(r"\[TOOL_CALLS\]\s*([\w-]+)\s*(?:\[ARGS\])?\s*(\{.*\})", re.DOTALL)
_FUNCTION = re.compile(r"<function=([\w-]+)>\s*(.*?)\s*</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([\w-]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_SHORTEST_QUOTE = 3


@dataclass(frozen=True, slots=True)
class WrittenCall:
    """A call as text; `marked` tells whether a template's mark says that it is one, as bare JSON does not."""

    name: str
    arguments: JsonObject
    marked: bool

    def made(self, prompt: Prompt) -> ToolCall | None:
        """The call, if it may run: one that stands in what was read could be others' wish."""
        read = "\n".join(_read_texts(prompt))
        if not self.marked or any(value in read for value in _long_values(self.arguments)):
            return None
        return ToolCall(f"call_{uuid4().hex[:24]}", self.name, json.dumps(self.arguments), written=True)


def written_call(text: str, tools: Sequence[ToolSpec]) -> WrittenCall | None:
    """The call of a known tool that the whole text is; None for any other text."""
    text, specs = text.strip(), {tool.name: tool for tool in tools}
    tagged = _TAGGED.fullmatch(text)
    inner = tagged[1] if tagged else text
    for call in (_function(inner, specs), _named(inner), _json(inner, marked=tagged is not None)):
        if call is not None and call.name in specs:
            return call
    return None


def _function(text: str, specs: dict[str, ToolSpec]) -> WrittenCall | None:
    """`<function=NAME>` with parameters, or with the JSON of all of them."""
    if not (found := _FUNCTION.fullmatch(text)):
        return None
    name, body = found.groups()
    if body.startswith("{"):
        arguments = _object(body)
        return None if arguments is None else WrittenCall(name, arguments, marked=True)
    if _PARAMETER.sub("", body):
        return None
    types = _types(specs[name]) if name in specs else {}
    given = {key: _value(value, types.get(key)) for key, value in _PARAMETER.findall(body)}
    return WrittenCall(name, given, marked=True)


def _named(text: str) -> WrittenCall | None:
    found = _NAMED.fullmatch(text)
    arguments = _object(found[2]) if found else None
    return WrittenCall(found[1], arguments, marked=True) if found and arguments is not None else None


def _json(text: str, *, marked: bool) -> WrittenCall | None:
    """`{"name": …, "arguments": {…}}`, alone, behind a mark, or the only one of a list."""
    if prefixed := _PREFIXED.fullmatch(text):
        text, marked = prefixed[1], True
    with suppress(ValueError, RecursionError):
        match json.loads(text):
            case (
                {"name": str(name), "arguments": dict(given)}
                | {"name": str(name), "parameters": dict(given)}
                | [{"name": str(name), "arguments": dict(given)}]
            ):
                return WrittenCall(name, given, marked)
    return None


def _object(text: str) -> JsonObject | None:
    with suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(text), dict):
            return found
    return None


def _types(tool: ToolSpec) -> dict[str, object]:
    fields = tool.parameters.get("properties")
    named = fields.items() if isinstance(fields, dict) else ()
    return {name: field.get("type") for name, field in named if isinstance(field, dict)}


def _value(text: str, type: object) -> Json:
    """The value of a parameter, which is written as text whatever its type is."""
    if type not in ("string", None):
        with suppress(ValueError, RecursionError):
            value: Json = json.loads(text)
            return value
    return text


def _long_values(value: Json) -> Iterator[str]:
    match value:
        case dict():
            for each in value.values():
                yield from _long_values(each)
        case list():
            for each in value:
                yield from _long_values(each)
        case str() if len(value) >= _SHORTEST_QUOTE:
            yield value


def _read_texts(prompt: Prompt) -> Iterator[str]:
    """Results of tools, and what messages quote."""
    for message in prompt.messages:
        match message:
            case ToolMessage(_, text):
                yield text
            case UserMessage(text):
                yield from (line for line in text.splitlines() if line.lstrip().startswith(">"))
            case _:
                pass

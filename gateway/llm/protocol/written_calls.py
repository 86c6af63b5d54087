"""Tool calls that a model writes as text, in the forms of the open models' chat templates."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

from gateway.domain.conversation.model import Prompt, ToolCall, ToolMessage, ToolSpec, UserMessage
from gateway.domain.json import Json, JsonObject, json_or_text
from gateway.llm.protocol.chunks import bare_name

_MARK = r"(?:<[|｜]/?[^<>|｜\n]{1,40}[|｜]>|</?(?:minimax:)?tool_calls?>|\[(?:TOOL_CALLS|ARGS)\])"
_OPENING = re.compile(rf"(?:{_MARK}\s*)+")
_CLOSING = re.compile(_MARK)
_NAMED = re.compile(
    rf"(?:function{_MARK})?([\w.-]+)(?::\d+)?(?:\s*{_MARK})?\s*(?:```json\s*)?(\{{.*\}}|<parameter=.*>)\s*(?:```)?",
    re.DOTALL,
)
_SPELLINGS = (
    (re.compile(r'<invoke name="([\w-]+)">'), r"<function=\1>"),
    (re.compile(r'<parameter name="([\w-]+)">'), r"<parameter=\1>"),
    (re.compile(r"<arg_key>([\w-]+)</arg_key>\s*<arg_value>"), r"<parameter=\1>"),
    (re.compile(r"</arg_value>"), "</parameter>"),
    (re.compile(r"</invoke>"), "</function>"),
)
"""Other ways to write `<function=…>` and its parameters."""
_FUNCTION = re.compile(r"<function=([\w-]+)>(.*)</function>", re.DOTALL)
_FUNCTION_MARK = re.compile(r"<(?:function=|invoke name=|function_calls?>)")
_PYTHON = re.compile(r"\[?([A-Za-z_]\w*)\((?:\s*\w+\s*=|\s*\))")
_CALLED = re.compile(
    rf'"(?:tool_)?name"\s*:\s*"([\w-]+)"|<function=([\w-]+)|name="([\w-]+)"|{_MARK}\s*(?:functions\.)?([\w-]+)\s*[{{<\[]'
)
_PARAMETER = re.compile(r"<parameter=([\w-]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
_SHORTEST_QUOTE = 3
_LONGEST_CALL = 50_000
"""In characters; a longer text stays text."""


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
    if len(text) > _LONGEST_CALL:
        return None
    inner, marked = _between_marks(text)
    for call in (_function(inner, specs), _named(inner, specs) if marked else None, _json(inner, marked=marked)):
        if call is not None and call.name in specs:
            return call
    return None


def unreadable_call(text: str, tools: Sequence[ToolSpec]) -> str | None:
    """The known tool that a text tries to call in another way: several calls, a broken one, or a line of Python."""
    text = text.strip()
    python = _PYTHON.match(text)
    if not (_OPENING.match(text) or _FUNCTION_MARK.match(text) or (python and text.endswith((")", ")]")))):
        return None
    named = [python[1]] if python else ["".join(each) for each in _CALLED.findall(text)]
    return next((name for name in named if name in {tool.name for tool in tools}), None)


def _between_marks(text: str) -> tuple[str, bool]:
    """The text between the marks of a template, in one spelling, and whether one begins it."""
    opening = _OPENING.match(text)
    text = text[opening.end() :].rstrip() if opening else text
    while (at := text.rfind("<")) >= 0 and _CLOSING.fullmatch(text, at):
        text = text[:at].rstrip()
    for spelling, usual in _SPELLINGS if opening else ():
        text = spelling.sub(usual, text)
    return text, opening is not None


def _function(text: str, specs: dict[str, ToolSpec]) -> WrittenCall | None:
    """`<function=NAME>` with parameters, or with the JSON of all of them."""
    if not (found := _FUNCTION.fullmatch(text)):
        return None
    name, body = found[1], found[2].strip()
    if body.startswith("{"):
        arguments = json_or_text(body)
        return WrittenCall(name, arguments, marked=True) if isinstance(arguments, dict) else None
    if _PARAMETER.sub("", body):
        return None
    types = _types(specs[name]) if name in specs else {}
    given = {key: _value(value, types.get(key)) for key, value in _PARAMETER.findall(body)}
    return WrittenCall(name, given, marked=True)


def _named(text: str, specs: dict[str, ToolSpec]) -> WrittenCall | None:
    """The name, then its parameters or the JSON of all of them."""
    found = _NAMED.fullmatch(text)
    return _function(f"<function={bare_name(found[1])}>{found[2]}</function>", specs) if found else None


def _json(text: str, *, marked: bool) -> WrittenCall | None:
    """`{"name": …, "arguments": {…}}`, alone or the only one of a list."""
    match json_or_text(text):
        case [dict(call)] | dict(call):
            name, given = call.get("name", call.get("tool_name")), call.get("arguments", call.get("parameters"))
            if isinstance(name, str) and isinstance(given, dict):
                return WrittenCall(name, given, marked)
    return None


def _types(tool: ToolSpec) -> dict[str, object]:
    fields = tool.parameters.get("properties")
    named = fields.items() if isinstance(fields, dict) else ()
    return {name: field.get("type") for name, field in named if isinstance(field, dict)}


def _value(text: str, type: object) -> Json:
    """The value of a parameter, which is written as text whatever its type is."""
    return text if type in ("string", None) else json_or_text(text)


def _long_values(value: Json) -> Iterator[str]:
    match value:
        case dict() | list():
            for each in value.values() if isinstance(value, dict) else value:
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

"""Tool calls that a model writes as text, in the forms of the open models' chat templates."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from uuid import uuid4

from pydantic import AliasChoices, AliasPath, BaseModel, Field, JsonValue, ValidationError
from pydantic import Json as JsonText

from gateway.domain.conversation.model import Prompt, ToolCall, ToolMessage, ToolSpec, UserMessage
from gateway.domain.json import Json, JsonObject, json_or_text
from gateway.llm.protocol.bounds import MAX_CALLS
from gateway.llm.protocol.chunks import ARGUMENTS, bare_name, object_text
from gateway.llm.protocol.thinking import FENCE

_MARK = (
    r"(?:<[|｜]/?[^<>|｜\n]{1,40}[|｜]>|(?i:</?(?:\w+:)?(?:tool|function)_?calls?(?: [^<>]*)?>)|</?tools>"
    r"|\[(?:TOOL_CALLS|CALL_ID\]\w+\[ARGS|ARGS)\]|functools(?=\[))"
)
_OPENING = re.compile(rf"(?:(?:{_MARK}|(?:commentary\s+)?to=functions\.)\s*)+")
_CLOSING = re.compile(_MARK)
_BETWEEN = re.compile(
    rf"\s*{_MARK}\s*(?:{_MARK}\s*)+|\[TOOL_CALLS\]|(?<=</function>)\s+(?=<function=)|(?<=\}})[;\n]\s*(?=\{{)"
)
_NAMED = re.compile(
    rf"(?:function{_MARK})?([\w.-]+)(?::\d+)?(?:\s*(?:{_MARK}|commentary|json))*"
    r"\s*(?:```json\s*)?(\{.*\}|<parameter=.*>)\s*(?:```)?",
    re.DOTALL,
)
_PREFIX = re.compile(r"(?<=[</])(?:[|｜]DSML[|｜]|steptml:|antml:|longcat_)")
"""Before the marks and the tags of some templates."""
_SPELLINGS = (
    (re.compile(r'<invoke name="([\w-]+)">'), r"<function=\1>"),
    (re.compile(r'<parameter name="([\w-]+)"[^<>]*>'), r"<parameter=\1>"),
    (re.compile(r"<arg_key>([\w-]+)</arg_key>\s*<arg_value>"), r"<parameter=\1>"),
    (re.compile(r"</arg_value>"), "</parameter>"),
    (re.compile(r"</invoke>"), "</function>"),
)
"""Other ways to write `<function=…>` and its parameters."""
_FUNCTION = re.compile(rf"(?:function{_MARK})?<function=([\w-]+)>(.*?)(?:</function>)?", re.DOTALL)
_PYTHON = re.compile(r"\[?[A-Za-z_]\w*\((?:\s*\w+\s*=|\s*\))")
_BEGINNING = re.compile(
    r"<[^<>\n]{0,40}(?:tool|function|invoke|python_tag|plugin)[^<>\n]{0,60}>|\[TOOL_CALLS\]|functools\["
    r"|<\|channel\|>commentary to=",
    re.IGNORECASE,
)
_ACTION = r"(?:Thought:[^<]{{0,4000}}\n)?Action: ?(?:{0})\s|<(?:{0})>"
"""The beginning of a call as a framework of agents has it."""
_CALLED = r"(?<!\w)({})(?=[\"'>]|:\d|\.call\(|\s*[({{<\[|｜]|\s*\n)"
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


def written_calls(text: str, tools: Sequence[ToolSpec]) -> list[WrittenCall]:
    """The calls of known tools that the whole text is, each once; none for any other text."""
    if len(text) > _LONGEST_CALL or text.lstrip("\n").startswith("    "):
        return []
    text, specs = text.strip(), {tool.name: tool for tool in tools}
    inner, marked = _between_marks(text)
    calls = _calls(inner, specs, marked=marked)
    if not calls and 1 < len(parts := _BETWEEN.split(inner)) <= MAX_CALLS:
        each = [_calls(part.strip(), specs, marked=marked) for part in parts]
        calls = [call for found in each for call in found] if all(each) else []
    return [call for place, call in enumerate(calls) if call not in calls[:place]]


def _calls(text: str, specs: dict[str, ToolSpec], *, marked: bool) -> list[WrittenCall]:
    found = (_function(text, specs), _named(text, specs) if marked else [], _json(text, marked=marked))
    named = (calls for calls in found if 0 < len(calls) <= MAX_CALLS and all(call.name in specs for call in calls))
    return next(named, [])


def unreadable_call(text: str, tools: Sequence[ToolSpec]) -> tuple[str, str] | None:
    """The words before a call that ends a text, or begins it, and the known tool that it names; not in code or quotes.

    It doesn't run: it is broken, a line of Python, or stands behind words, as an example may.
    """
    text = text.strip()
    marks = (found.start() for found in islice(_BEGINNING.finditer(text), MAX_CALLS))
    at = next((place for place in marks if not _in_code(text[:place])), None)
    names = "|".join(re.escape(tool.name) for tool in tools) or "(?!)"
    at = 0 if (_PYTHON.match(text) and text.endswith((")", ")]"))) or re.match(_ACTION.format(names), text) else at
    if at is None or (at and not text.endswith((">", "}", "]"))):
        return None
    called = re.compile(_CALLED.format(names)).search(text, at)
    return (text[:at].rstrip(), called[1]) if called else None


def _in_code(before: str) -> bool:
    """Whether a text goes on in code, or in a line that is quoted."""
    line = before.rpartition("\n")[2]
    return bool(re.match(r" {4}|\s*>", line)) or before.endswith("`") or len(FENCE.findall(before)) % 2 == 1


def _between_marks(text: str) -> tuple[str, bool]:
    """The text between the marks of a template, in one spelling, and whether one begins it."""
    text = _PREFIX.sub("", text)
    opening = _OPENING.match(text)
    text = text[opening.end() :].rstrip() if opening else text
    while (at := text.rfind("<")) >= 0 and _CLOSING.fullmatch(text, at):
        text = text[:at].rstrip()
    for spelling, usual in _SPELLINGS if opening else ():
        text = spelling.sub(usual, text)
    return text, opening is not None


def _function(text: str, specs: dict[str, ToolSpec]) -> list[WrittenCall]:
    """`<function=NAME>` with parameters, or with the JSON of all of them."""
    if not (found := _FUNCTION.fullmatch(text)):
        return []
    name, body = found[1], found[2].strip()
    if body.startswith("{"):
        arguments = json_or_text(body)
        return [WrittenCall(name, arguments, marked=True)] if isinstance(arguments, dict) else []
    if _PARAMETER.sub("", body):
        return []
    types = _types(specs[name]) if name in specs else {}
    given = {key: _value(value, types.get(key)) for key, value in _PARAMETER.findall(body)}
    return [WrittenCall(name, given, marked=True)]


def _named(text: str, specs: dict[str, ToolSpec]) -> list[WrittenCall]:
    """The name, then its parameters or the JSON of all of them."""
    found = _NAMED.fullmatch(text)
    return _function(f"<function={bare_name(found[1])}>{found[2]}</function>", specs) if found else []


class _Written(BaseModel, defer_build=True):
    name: str = Field(
        validation_alias=AliasChoices("name", "tool_name", "tool", AliasPath("function", "name"), "function")
    )
    arguments: JsonText[dict[str, JsonValue]] | dict[str, JsonValue] | None = Field(
        None, validation_alias=AliasChoices(*ARGUMENTS, "tool_input", AliasPath("function", "arguments"))
    )


def _json(text: str, *, marked: bool) -> list[WrittenCall]:
    """`{"name": …, "arguments": {…}}`, in a list or alone."""
    data = json_or_text((marked and object_text(text)) or text)
    with suppress(ValidationError):
        found = data.get("tool_calls", [data.get("function_call", data)]) if isinstance(data, dict) else data
        calls = map(_Written.model_validate, found if isinstance(found, list) else ())
        return [WrittenCall(call.name, call.arguments or {}, marked) for call in calls if marked or call.arguments]
    return []


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

"""Chunks of OpenAI's chat format, and the answer assembled from them."""

import json
import re
from ast import literal_eval
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeAlias
from uuid import uuid4

from pydantic import AliasChoices, AliasPath, BaseModel, Field, WrapValidator

from gateway.domain.conversation.model import ToolCall, Usage
from gateway.domain.json import json_or_text
from gateway.domain.text.texts import GrowingText, storable
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.protocol.bounds import MAX_CALLS, MAX_CHARS, MAX_NAME, endless
from gateway.llm.protocol.thinking import ThinkingFilter
from gateway.llm.protocol.unknown_fields import UnknownFields
from gateway.llm.provider import ProviderReply, if_sensible

_NAME_PARTS = re.compile(r"\s*(?:[\w-]+[.:/])*([A-Za-z_][\w-]*)(?::\d+)?\s*(?:<\|.*)?", re.DOTALL)
_JSON = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
"""Takes raw line breaks, and NaN as nothing."""
_LITERALS = re.compile(r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')|\b(true|false|null|NaN|Infinity)\b", re.DOTALL)
_LONGEST_LITERAL = 50_000
_BEFORE_OBJECT = re.compile(r"^[\s\ufeff]*(?:```\w*\s*)?(?:\{\}(?=\s*\{))?\s*")
_BEHIND_OBJECT = re.compile(r"[\s`}]*(?:<[^<>]*>\s*)*")


@dataclass(slots=True)
class CallBuilder:
    """One call; `place` is that of its pieces: choice and index.

    Some servers repeat its name in each piece, some send its arguments again from the start.
    """

    place: tuple[int, int]
    id: str
    name: str = ""
    unknown: dict[str, Any] = field(default_factory=dict)
    """Its fields that we don't know."""
    _arguments: GrowingText = field(default_factory=GrowingText)
    _written: int = 0
    _begun: int = 0
    """Characters before the newest piece that begins an object."""

    def add(self, name: str, arguments: str) -> None:
        """Add a piece."""
        if name != self.name:
            self.name = name if name.startswith(self.name) else self.name + name
        if _begins_object(arguments):
            self._begun = self._written
        self._arguments.add(arguments)
        self._written += len(arguments)

    def ended_by(self, name: str, arguments: str) -> bool:
        """Whether this piece begins another call, though it has the same id or place."""
        other = bool(self.name and name) and not name.startswith(self.name)
        if not (self._written and (other or (name and _begins_object(arguments)))):
            return False
        before = str(self._arguments)
        return (before != arguments or other) and before.rstrip().endswith("}") and object_text(before) is not None

    def made(self) -> ToolCall:
        """The call as the model means it."""
        text = storable(str(self._arguments))
        arguments = object_text(text) or object_text(text[self._begun :]) or text
        return ToolCall(storable(self.id), bare_name(storable(self.name)), arguments or "{}")


def bare_name(name: str) -> str:
    """The name of a tool, also from `functions.NAME`, `functions.NAME:0` and `NAME<|channel|>…`."""
    found = _NAME_PARTS.fullmatch(name)
    return found[1] if found else name


def _begins_object(arguments: str) -> bool:
    return arguments.lstrip().startswith("{")


def object_text(text: str) -> str | None:
    """The JSON object that the text is, or that a JSON string holds, without stray marks around it; else None."""
    if text.strip() in ("", "null", "None", "[]"):
        return "{}"
    text = _BEFORE_OBJECT.sub("", text, count=1)
    with suppress(ValueError, RecursionError):
        value, end = _JSON.raw_decode(text)
        if isinstance(value, str):
            return object_text(value)
        if isinstance(value, dict) and (_BEHIND_OBJECT.fullmatch(text, end) or text[:end] == text[end:].strip()):
            return text[:end] if json_or_text(text[:end]) == value else json.dumps(value)
    return _from_python(text.rstrip("` \n"))


def _from_python(text: str) -> str | None:
    """The object that a text is in Python's notation, also with JSON's words; a comma may follow the last item."""
    text = _LITERALS.sub(lambda found: found[1] or {"true": "True", "false": "False"}.get(found[2], "None"), text)
    with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        value = literal_eval(text if len(text) <= _LONGEST_LITERAL else "")
        return json.dumps(value, allow_nan=False) if isinstance(value, dict) else None
    return None


_KNOWN = frozenset({"role", "type", "function_call", "annotations", "audio", "images"})
"""Fields without a use for us; others that aren't declared are for their provider."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking", "reasoning_text")
MAX_THOUGHT = 200_000
"""Characters of an answer's thinking that are kept."""


class _Wire(BaseModel, extra="ignore", from_attributes=True, defer_build=True):
    """Part of a reply as a server sends it, or an SDK returns it."""


class _Open(_Wire, extra="allow"):
    @property
    def unknown(self) -> dict[str, Any]:
        """Its fields that aren't declared."""
        return {name: value for name, value in (self.model_extra or {}).items() if name not in _KNOWN}


ARGUMENTS = ("arguments", "parameters", "input", "args")


class FunctionPiece(_Open):
    """A piece of a call's name or arguments."""

    name: str | None = None
    arguments: str | None = Field(None, validation_alias=AliasChoices(*ARGUMENTS))


class CallPiece(FunctionPiece):
    """A piece of one tool call; some servers put the name and the arguments beside the id."""

    index: int | None = None
    id: str | None = None
    function: FunctionPiece | None = None


class TextPart(_Wire):
    """One part of a content list; only texts belong to the answer."""

    type: str = ""
    text: str | None = None


class Delta(_Open):
    """The additions of one chunk."""

    content: str | Annotated[list[TextPart], Field(max_length=MAX_CALLS)] | None = None
    refusal: str | None = None
    summary: str | None = None
    """A summary of the thinking, which its provider doesn't get back."""
    tool_calls: list[CallPiece] | None = Field(None, max_length=MAX_CALLS)
    function_call: FunctionPiece | None = None
    """A call as it was before there were several."""


class StreamChoice(_Wire):
    """A part of the answer, the only one that we ask for. A `message` that ends a stream is all that it said."""

    index: int | None = None
    delta: Delta | None = None
    message: Delta | None = None
    finish_reason: str | None = None
    error: object = None


Tokens: TypeAlias = Annotated[int, Field(ge=0, le=10**8)]
MAX_USD = 1000.0
"""Of one call."""


def _detail(name: str, *of: str) -> AliasChoices:
    return AliasChoices(*(AliasPath(f"{each}_tokens_details", name) for each in of))


class UsageReport(_Wire):
    """Tokens as counted by the provider; some also report the price."""

    prompt_tokens: Tokens | None = Field(None, validation_alias=AliasChoices("prompt_tokens", "input_tokens"))
    completion_tokens: Tokens | None = Field(None, validation_alias=AliasChoices("completion_tokens", "output_tokens"))
    cached: Tokens | None = Field(None, validation_alias=_detail("cached_tokens", "prompt", "input"))
    thinking: Tokens | None = Field(None, validation_alias=_detail("reasoning_tokens", "completion", "output"))
    prompt_cache_hit_tokens: Tokens | None = None
    cost: float | None = Field(None, ge=0, le=MAX_USD, allow_inf_nan=False)


_CHOICES = AliasChoices("choices", AliasPath("data", "choices"), AliasPath("result", "choices"))
_USAGE = AliasChoices("usage", AliasPath("choices", 0, "usage"))
_BASE = AliasPath("base_resp", "status_code")
_SAYS = ("message", "detail", _BASE, "errors", "error_msg", "msg", "errmsg", "error_message", "fault", "title")


class Chunk(_Wire):
    """One event of the stream, or a whole answer sent in one piece."""

    choices: list[StreamChoice] | None = Field(None, max_length=MAX_CALLS, validation_alias=_CHOICES)
    usage: Annotated[UsageReport | None, WrapValidator(if_sensible), Field(validation_alias=_USAGE)] = None
    error: object = None
    says: object = Field(None, validation_alias=AliasChoices(*_SAYS))
    """Without choices: an error, too."""


_CUT = re.compile(r"length|max.{0,8}tokens|context.window|(?<!rate.)limit|truncat|num_predict", re.IGNORECASE)
_HELD_BACK = re.compile(
    r"(?<!call_)filter|safe|sensitiv|prohibit|block|recit|refus|guard|spii|toxic|policy|armor|language|censor|viola",
    re.I,
)
_BROKEN = re.compile(
    r"(?i)error|abort|insuff|malform|time_?out|cancel|fail|interr|preempt|load|rate.lim|busy|kill|termin|memory|connect|avail"
)


def _ending(finish: str) -> str:
    """The reason to finish in OpenAI's words; raises `ModelError` if the answer is not whole through no fault of it."""
    reason = "length" if _CUT.search(finish) else "content_filter" if _HELD_BACK.search(finish) else finish
    if reason == finish and _BROKEN.search(finish):
        raise ModelError(ErrorKind.SERVER, f"the answer broke off (finish reason {finish})")
    return reason


def replace_odd_values(data: Any, places: Iterable[Sequence[int | str]]) -> None:
    """Replace the values of a chunk's JSON that have another type than ours, in place.

    A number becomes text, and arguments that came as an object become their JSON; another odd value is no value.
    """
    for *way, key in {_reached(data, place) for place in places} - {()}:
        holder = data
        for step in way:
            holder = holder[step]
        value = holder[key]
        if (isinstance(value, int | float) and value is not False) or (key in ARGUMENTS and value is not None):
            holder[key] = json.dumps(value)
        else:
            holder[key] = {} if isinstance(holder, list) else None


def _reached(data: Any, place: Sequence[int | str]) -> tuple[int | str, ...]:
    """The part of the place that the data has; the rest names the type that was expected."""
    for depth, step in enumerate(place):
        if step not in (data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()):
            return tuple(place[:depth])
        data = data[step]
    return tuple(place)


@dataclass(slots=True)
class AnswerBuilder:
    """Assembles chunks. `finish` is None until the provider reports the end of the answer; nothing follows if `done`.

    `size` counts characters, including those of the reasoning, which isn't part of the text. After a
    piece that ended thinking which nothing had begun (`thinking.dropped`), the text begins with what the piece added.
    """

    thinking: ThinkingFilter = field(default_factory=ThinkingFilter)
    finish: str | None = None
    done: bool = False
    size: int = 0
    unknown: UnknownFields = field(default_factory=lambda: UnknownFields(""))
    _text: GrowingText = field(default_factory=GrowingText)
    _thought: GrowingText = field(default_factory=GrowingText)
    _new_thought: str = ""
    _calls: list[CallBuilder] = field(default_factory=list)
    _usage: UsageReport | None = None

    def add(self, chunk: Chunk) -> str:
        """Add a chunk; returns the text it added. Raises `ModelError` past a bound."""
        if chunk.usage and (chunk.usage.prompt_tokens or chunk.usage.completion_tokens):
            self._usage = chunk.usage
        begun = self.size > 0
        return "".join([self._add_choice(choice, begun) for choice in chunk.choices or ()])

    def _add_choice(self, choice: StreamChoice, begun: bool) -> str:
        """We ask for one answer; some servers put its calls into a second choice."""
        self.finish = choice.finish_reason or self.finish
        delta = choice.delta or (None if begun and choice.finish_reason else choice.message)
        if delta is None:
            return ""
        older = (CallPiece(index=0, function=delta.function_call),) if delta.function_call else ()
        for piece in delta.tool_calls or older:
            self._add_piece(piece, choice.index or 0)
        unknown, text = delta.unknown, storable(_text(delta))
        if unknown:
            self.unknown.add(self.unknown.message, unknown)
        self._grow(len(text) or _hidden(delta, unknown))
        shown = self.thinking.add(text) if text else ""
        hidden, self.thinking.hidden = _thought(delta, unknown) + self.thinking.hidden, ""
        if text and self.thinking.dropped:
            hidden, self._text = hidden + str(self._text), GrowingText()
        self._new_thought += hidden
        self._thought.add(hidden)
        self._text.add(shown)
        return shown

    def take_thought(self) -> str:
        """The thinking that was added since the last call."""
        new, self._new_thought = self._new_thought, ""
        return new

    def end(self) -> str:
        """The rest of the text at the end of the answer."""
        rest = self.thinking.end()
        self._text.add(rest)
        return rest

    def reply(self) -> ProviderReply:
        """The whole answer; a call without a name is none."""
        self._calls = [call for call in self._calls if call.name]
        calls = tuple(call.made() for call in self._calls)
        usage = _usage(self._usage) if self._usage else None
        fields, finish = self.unknown.whole([call.unknown for call in self._calls]), _ending(self.finish or "stop")
        thought = str(self._thought)[:MAX_THOUGHT]
        return ProviderReply(str(self._text), calls, usage, finish, fields, thought)

    def _add_piece(self, piece: CallPiece, choice: int) -> None:
        function = piece.function or piece
        name, arguments = function.name or "", function.arguments or ""
        call = self._call_of(piece, choice)
        if call.ended_by(name, arguments):
            call = self._new_call(call.place, "")
        call.add(name, arguments)
        self.unknown.add(call.unknown, {**piece.unknown, "function": function.unknown if piece.function else {}})
        self._grow(len(name) + len(arguments))
        if len(call.name) > MAX_NAME:
            raise endless(f"a tool's name of more than {MAX_NAME} characters")

    def _grow(self, characters: int) -> None:
        self.size += characters
        if self.size > MAX_CHARS:
            raise endless(f"more than {MAX_CHARS:,} characters")

    def _call_of(self, piece: CallPiece, choice: int) -> CallBuilder:
        """The call a piece belongs to: some servers give every call index 0, or pieces of one call different ids."""
        id = piece.id if piece.id and len(piece.id) <= MAX_NAME else ""
        begins = bool(id and (piece.function or piece).name)
        place = choice, max(0, len(self._calls) - (not begins)) if piece.index is None else piece.index
        same_id = [call for call in self._calls if call.id == id and (piece.index is None or call.place == place)]
        if same := same_id or [call for call in self._calls if call.place == place and not begins]:
            return same[-1]
        return self._new_call(place, id)

    def _new_call(self, place: tuple[int, int], id: str) -> CallBuilder:
        if len(self._calls) == MAX_CALLS:
            raise endless(f"more than {MAX_CALLS} tool calls")
        call = CallBuilder(place, id or f"call_{uuid4().hex[:24]}")
        self._grow(1)
        self._calls.append(call)
        return call


def _text(delta: Delta) -> str:
    if isinstance(delta.content, list):
        return "".join(part.text or "" for part in delta.content if part.type in ("text", "output_text", ""))
    return delta.content or delta.refusal or ""


def _thought(delta: Delta, unknown: Mapping[str, Any]) -> str:
    """The thinking that it shows; some servers send the same in several fields."""
    each = (delta.summary, *map(unknown.get, _THOUGHTS if unknown else ()))
    return storable(next((text for text in each if isinstance(text, str) and text), ""))


def _hidden(delta: Delta, unknown: Mapping[str, Any]) -> int:
    """Characters of the reasoning, or of another field that isn't shown; 1 if it isn't text."""
    hidden = (*unknown.values(), delta.content, delta.summary)
    return max(len(each) if isinstance(each, str) else bool(each) for each in hidden)


def _usage(report: UsageReport) -> Usage:
    cached, written = report.cached or report.prompt_cache_hit_tokens or 0, report.completion_tokens or 0
    return Usage(report.prompt_tokens or 0, written, cached, report.cost or 0.0, min(written, report.thinking or 0))

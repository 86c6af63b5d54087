"""Chunks of an OpenAI chat stream, and the answer assembled from them."""

from dataclasses import dataclass, field
from uuid import uuid4

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from gateway.domain.model import ToolCall, Usage
from gateway.llm.provider import ProviderReply
from gateway.llm.refusal import Refusal


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", from_attributes=True)


class Function(_Wire):
    """A piece of a call's name or arguments."""

    name: str | None = None
    arguments: str | None = None


class CallPiece(_Wire):
    """A piece of one tool call."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


class TextPart(_Wire):
    """One part of a content list; only parts of type `text` belong to the answer."""

    type: str = ""
    text: str | None = None


class Delta(_Wire):
    """What one chunk adds."""

    content: str | list[TextPart] | None = None
    refusal: str | None = None
    tool_calls: list[CallPiece] | None = None


class Choice(_Wire):
    """One of the answers; we only request one. Outside a stream its text is called `message`."""

    delta: Delta | None = Field(None, validation_alias=AliasChoices("delta", "message"))
    finish_reason: str | None = None


class CachedTokens(_Wire):
    """Part of the usage report."""

    cached_tokens: int | None = None


class UsageReport(_Wire):
    """Tokens as counted by the provider; some also report the price."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: CachedTokens | None = None
    prompt_cache_hit_tokens: int | None = None
    cost: float | None = None


class Chunk(_Wire):
    """One event of the stream, or a whole answer sent in one piece."""

    choices: list[Choice] | None = None
    usage: UsageReport | None = None
    error: Refusal | str | None = None


@dataclass(slots=True)
class _Call:
    index: int
    id: str
    name: str = ""
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Answer:
    """Assembles chunks. `finish` is None until the provider reports the end of the answer."""

    finish: str | None = None
    _text: list[str] = field(default_factory=list)
    _calls: list[_Call] = field(default_factory=list)
    _usage: UsageReport | None = None

    def add(self, chunk: Chunk) -> str:
        """Add a chunk; returns the text it added."""
        self._usage = chunk.usage or self._usage
        if not chunk.choices:
            return ""
        choice = chunk.choices[0]
        self.finish = choice.finish_reason or self.finish
        if choice.delta is None:
            return ""
        for piece in choice.delta.tool_calls or ():
            self._add_piece(piece)
        text = _text(choice.delta)
        self._text.append(text)
        return text

    def reply(self) -> ProviderReply:
        """The whole answer."""
        calls = tuple(ToolCall(call.id, call.name, "".join(call.arguments) or "{}") for call in self._calls)
        usage = _usage(self._usage) if self._usage else None
        return ProviderReply("".join(self._text), calls, usage, self.finish or "stop")

    def _add_piece(self, piece: CallPiece) -> None:
        call = self._call_of(piece)
        if piece.function:
            call.name += piece.function.name or ""
            call.arguments.append(piece.function.arguments or "")

    def _call_of(self, piece: CallPiece) -> _Call:
        """The call a piece belongs to; some servers give every call index 0, but ids always differ."""
        usual = len(self._calls) if piece.id else max(0, len(self._calls) - 1)
        index = usual if piece.index is None else piece.index
        for call in reversed(self._calls):
            if call.index == index and piece.id in (None, "", call.id):
                return call
        call = _Call(index, piece.id or f"call_{uuid4().hex[:24]}")
        self._calls.append(call)
        return call


def _text(delta: Delta) -> str:
    if isinstance(delta.content, list):
        return "".join(part.text or "" for part in delta.content if part.type == "text")
    return delta.content or delta.refusal or ""


def _usage(report: UsageReport) -> Usage:
    details = report.prompt_tokens_details
    cached = (details.cached_tokens if details else None) or report.prompt_cache_hit_tokens or 0
    return Usage(report.prompt_tokens or 0, report.completion_tokens or 0, cached, report.cost or 0.0)

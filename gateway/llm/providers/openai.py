"""Any server that speaks the OpenAI chat protocol, over HTTP without the official SDK.

The SDK costs 1.1 CPU s to import and twice the CPU per request, and would only pass bytes on.
"""

import re
from collections.abc import AsyncGenerator, Mapping, Sequence, Set
from contextlib import aclosing, asynccontextmanager
from io import BytesIO
from json import dumps
from typing import TYPE_CHECKING, TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from gateway.domain.conversation.model import Prompt
from gateway.domain.json import Json
from gateway.domain.settings import Params
from gateway.llm.error_words import OUTPUT_BOUND
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.protocol.answer_reader import garbled, read_answer, read_single
from gateway.llm.protocol.bounds import MAX_LINE_BYTES, beginning, bounded
from gateway.llm.protocol.http import HttpClient
from gateway.llm.protocol.refusal import ProviderRefusal, parse_refusal
from gateway.llm.protocol.thinking import ThinkingFilter
from gateway.llm.protocol.wire import (
    Calls,
    given_back,
    lacks_fields,
    messages_json,
    options_json,
    sampling_json,
    texts_of,
)
from gateway.llm.provider import Provider, ProviderEvent, ThinkingEnded
from gateway.llm.vendors import Endpoint, split_model

if TYPE_CHECKING:
    from aiohttp import ClientResponse, FormData

T = TypeVar("T", bound=BaseModel)

log = structlog.get_logger(__name__)

_OPTIONAL = (
    "tools",
    "tool_choice",
    "response_format",
    "stream_options",
    "temperature",
    "top_p",
    "max_completion_tokens",
    "max_tokens",
)
"""Fields without which an answer is still an answer."""
_GIVEN_BACK = "fields of its own"
_OTHERS_CALLS = "calls without fields of its own"
_WANTED = re.compile(r"(?si)(?=.*(reasoning_(content|details)|thought_?signature)).*(missing|must be|required|back)")
_NOT_TAKEN = re.compile(
    r"support|unrecognized|unknown|unexpected|extra (inputs|fields)|not (permitted|allowed|available|enabled)"
    r"|deprecated|disabled|requires|unavailable|only (the default|\S+ is allowed)|no endpoints|cannot find field"
    r"|remove the",
    re.IGNORECASE,
)
_OF_TOOLS = re.compile(r"\btools?\b|tool[ _-]?(use|choice|call)|function[ _-]?call|\bfunctions\b", re.IGNORECASE)
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_WHOLE_S = 120.0
"""Seconds for an answer that isn't streamed."""
_MAX_VECTORS_BYTES = 16 * 2**20
MAX_SPEECH_BYTES = 16 * 2**20
_OPUS = {"response_format": "opus"}
_JSON = {"Content-Type": "application/json"}


class _Transcript(BaseModel):
    text: str


class _Vector(BaseModel):
    index: int
    embedding: tuple[float, ...]


class _Vectors(BaseModel):
    data: tuple[_Vector, ...]


def build(endpoint: Endpoint) -> Provider:
    """The provider of one endpoint."""
    return OpenAIProvider(endpoint)


class OpenAIProvider:
    """One endpoint, one connection pool. Once a model refuses a parameter, it is no longer sent."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http = HttpClient(with_path(endpoint.address), endpoint.key)
        self._refused: dict[str, frozenset[str]] = {}
        self._thinks_first: set[str] = set()

    async def warm(self) -> None:
        """Import the HTTP library, in a thread."""
        await self._http.open()

    async def close(self) -> None:
        """Close the connection pool."""
        await self._http.close()

    async def stream(self, model: str, prompt: Prompt, params: Params, /) -> AsyncGenerator[ProviderEvent, None]:
        """Send one request, and another at once if the model refused an optional parameter."""
        self._require_key()
        _, name = split_model(model)
        answered = False
        while not answered:
            try:
                async with self._post(name, prompt, self._body(name, prompt, params)) as events:
                    async for event in events:
                        if isinstance(event, ThinkingEnded):
                            self._thinks_first.add(name)
                        yield event
                answered = True
            except _ParameterRefused as refusal:
                log.warning("model.refused", model=model, field=refusal.field, message=refusal.message)
                self._refused[name] = self._refused.get(name, frozenset()) | {refusal.field}

    async def transcribe(self, model: str, name: str, mime: str, audio: bytes, /) -> str:
        """Send one request; the answer is not streamed."""
        self._require_key()
        await self.warm()
        from aiohttp import FormData

        _, name_there = split_model(model)
        form = FormData({"model": name_there})
        form.add_field("file", BytesIO(audio), filename=name, content_type=mime)
        return (await self._whole(_Transcript, "/audio/transcriptions", form, {}, MAX_LINE_BYTES)).text

    async def speak(self, model: str, voice: str, text: str, /) -> bytes:
        """Send one request, and another without the format if that was refused."""
        self._require_key()
        request = {"model": split_model(model)[1], "voice": voice, "input": text}
        try:
            return await self._bytes("/audio/speech", BytesIO(dumps(request | _OPUS).encode()), _JSON, MAX_SPEECH_BYTES)
        except ModelError as error:
            if error.kind is not ErrorKind.BAD_REQUEST:
                raise
        return await self._bytes("/audio/speech", BytesIO(dumps(request).encode()), _JSON, MAX_SPEECH_BYTES)

    async def embed(self, model: str, texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """Send one request."""
        self._require_key()
        request = {"model": split_model(model)[1], "input": list(texts), "encoding_format": "float"}
        body = BytesIO(dumps(request).encode())
        found = await self._whole(_Vectors, "/embeddings", body, _JSON, _MAX_VECTORS_BYTES)
        return [vector.embedding for vector in sorted(found.data, key=lambda vector: vector.index)]

    def _require_key(self) -> None:
        if self._endpoint.lacks_key:
            raise ModelError(ErrorKind.AUTH, "no API key is configured")

    async def _whole(
        self, kind: type[T], path: str, body: "BytesIO | FormData", headers: Mapping[str, str], most: int
    ) -> T:
        """The answer to one request that isn't streamed, of at most so many bytes."""
        answer = await self._bytes(path, body, headers, most)
        try:
            return kind.model_validate_json(answer)
        except ValidationError as error:
            raise garbled(answer) from error

    async def _bytes(self, path: str, body: "BytesIO | FormData", headers: Mapping[str, str], most: int) -> bytes:
        async with self._http.post(path, body, headers, _WHOLE_S) as response:
            if response.status >= 400:
                raise (await _read_refusal(response)).as_error(response.status, response.headers)
            return b"".join([piece async for piece in bounded(response.content.iter_any(), most, longest=most)])

    def _source(self, name: str) -> str:
        """The source whose fields the model gets back; "" once it has refused them."""
        return "" if _GIVEN_BACK in self._refused.get(name, ()) else self._endpoint.source(name)

    def _body(self, name: str, prompt: Prompt, params: Params) -> dict[str, Json]:
        vendor, refused = self._endpoint.vendor, self._refused.get(name, frozenset())
        limit = vendor.limit_field if self._endpoint.base_url is None else "max_tokens"
        limit = _OTHER_NAME[limit] if limit in refused else limit
        calls: Calls = "none" if "tools" in refused else "own" if _OTHERS_CALLS in refused else "all"
        body: dict[str, Json] = {
            "model": name,
            "messages": messages_json(prompt, source=self._source(name), short_ids=vendor.short_call_ids, calls=calls),
            "stream": True,
            "stream_options": {"include_usage": True},
            limit: params.max_output_tokens,
            **sampling_json(params),
            **options_json(prompt),
        }
        if "tools" in refused:
            refused |= {"tool_choice"}
        return {field: value for field, value in body.items() if field not in refused}

    @asynccontextmanager
    async def _post(
        self, name: str, prompt: Prompt, body: dict[str, Json]
    ) -> AsyncGenerator[AsyncGenerator[ProviderEvent, None], None]:
        async with self._http.post("/chat/completions", BytesIO(dumps(body).encode()), _JSON) as response:
            if response.status >= 400:
                refusal = await _read_refusal(response)
                before = self._refused.get(name, frozenset())
                if field := _refused(refusal, response.status, prompt, body, self._source(name), before):
                    raise _ParameterRefused(field, refusal.message)
                raise refusal.as_error(response.status, response.headers)
            whole, content = response.content_type == "application/json", response.content.iter_any()
            thinking, source = ThinkingFilter(name in self._thinks_first), self._source(name)
            reading = read_single(content, source) if whole else read_answer(content, source, thinking)
            async with aclosing(reading) as events:
                yield events


class _ParameterRefused(Exception):
    """The model does not take an optional parameter."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field)
        self.field = field
        self.message = message


def with_path(base_url: str) -> str:
    """Append the usual path `/v1` to a bare host."""
    _, _, rest = base_url.rstrip("/").partition("://")
    return base_url if "/" in rest else f"{base_url.rstrip('/')}/v1"


async def _read_refusal(response: "ClientResponse") -> ProviderRefusal:
    return parse_refusal(await beginning(response.content.iter_any()))


def _refused(
    refusal: ProviderRefusal, status: int, prompt: Prompt, body: dict[str, Json], source: str, before: Set[str]
) -> str | None:
    """The part that the request may not have, however the server says so; None if it says something else.

    It is an optional field, the fields that the server itself sent, or others' calls, which lack them.
    """
    if status in (401, 402, 403, 408, 429):
        return None
    error = refusal.as_error(status).without_quotes(texts_of(prompt))
    if _OTHERS_CALLS not in before and _WANTED.match(error.words) and lacks_fields(prompt, source):
        return _OTHERS_CALLS
    named = {refusal.param, *refusal.fields}
    if not (_NOT_TAKEN.search(error.words) or str(refusal.code).startswith("unsupported_")):
        return None
    if any(name in named or re.search(rf"\b{re.escape(name)}\b", error.words) for name in given_back(prompt, source)):
        return _GIVEN_BACK
    if "tools" in body and (named & {"tools", "tool_choice", "functions"} or _OF_TOOLS.search(error.words)):
        return "tools"
    if status >= 500 or error.kind is ErrorKind.CONTEXT_LENGTH or OUTPUT_BOUND.search(error.words):
        return None
    return next((f for f in _OPTIONAL if f in body and (f in named or re.search(rf"\b{f}\b", error.words))), None)

"""All other providers, through litellm; the only file that imports it (5.6 CPU s and 140 MB, lazily, in a thread)."""

import asyncio
import os
import re
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import replace
from importlib import import_module
from json import loads
from typing import Protocol, cast

from pydantic import BaseModel

from gateway.domain.conversation.model import Prompt
from gateway.domain.json import Json, JsonObject
from gateway.domain.settings import CallParams
from gateway.llm.errors import ModelError, classify
from gateway.llm.protocol.answer_reader import read_answer
from gateway.llm.protocol.bounds import bounding
from gateway.llm.protocol.refusal import wait_in
from gateway.llm.protocol.refused_parts import LeftOut, Request, asked
from gateway.llm.protocol.thinking import ThinkingFilter
from gateway.llm.protocol.wire import litellm_thinking, options_json, sampling_json
from gateway.llm.provider import Provider, ProviderEvents, Transcription
from gateway.llm.vendors import NATIVE, Endpoint, split_model

_WHOLE_S = 120.0
"""Seconds for an answer that isn't streamed."""
_ENVIRONMENT = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
_INNER_MESSAGE = re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)+)"')
_PREFIXES = re.compile(r"^(?:litellm\.\w+:\s*|\w+(?:Error|Exception)\s*[:-]\s*)+")


class Litellm(Protocol):
    """The parts of litellm's module that we use."""

    telemetry: bool
    suppress_debug_info: bool
    disable_aiohttp_transport: bool
    provider_list: Sequence[str]

    async def acompletion(self, **request: Json) -> AsyncGenerator[BaseModel, None]:
        """Start one streamed answer."""

    async def atranscription(self, *, file: tuple[str, bytes, str], **request: Json) -> BaseModel:
        """Transcribe audio."""

    async def aembedding(self, **request: Json) -> object:
        """Embed texts."""


def build(endpoint: Endpoint) -> Provider:
    """The provider of one endpoint."""
    return LitellmProvider(endpoint)


class LitellmProvider(Provider):
    """One endpoint. litellm manages its own connections, shared by all its users in the process."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._module: Litellm | None = None
        self._opening = asyncio.Lock()

    async def warm(self) -> None:
        """Import litellm in a thread."""
        await self._open()

    def stream(self, model: str, prompt: Prompt, params: CallParams, /) -> ProviderEvents:
        """Send one request, and another at once if the model refused an optional parameter."""

        def ask(left: LeftOut, thinking: ThinkingFilter) -> Request:
            request = self._request(model, prompt, params, left)
            return request, aclosing(self._answer(model, request, thinking))

        return asked(ask, self._endpoint, model, prompt, params, self._endpoint.source(model))

    async def _answer(self, model: str, request: dict[str, Json], thinking: ThinkingFilter) -> ProviderEvents:
        litellm = self._module or await self._open()
        with _translating():
            chunks = await litellm.acompletion(**request, model=_named(litellm, model))
            reading = read_answer(_payloads(chunks), self._endpoint.source(model), thinking)
            async with aclosing(chunks), aclosing(reading) as events:
                async for event in events:
                    yield event

    async def transcribe(self, model: str, name: str, mime: str, audio: bytes, /) -> Transcription:
        """Send one request; the answer is not streamed."""
        litellm = self._module or await self._open()
        with _translating():
            recording = (name, audio, mime)
            transcript = await litellm.atranscription(file=recording, model=model, timeout=_WHOLE_S, **self._access)
        return Transcription.model_validate({"text": "", **transcript.model_dump(exclude_none=True)})

    async def embed(self, model: str, texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """Send one request."""
        litellm = self._module or await self._open()
        with _translating():
            answer = await litellm.aembedding(
                model=_named(litellm, model),
                input=list(texts),
                encoding_format="float",
                drop_params=True,
                timeout=_WHOLE_S,
                **self._access,
            )
        found = sorted(getattr(answer, "data", None) or (), key=lambda vector: vector["index"])
        return [vector["embedding"] for vector in found]

    @property
    def _access(self) -> dict[str, Json]:
        """The part that all requests share; retries are made by us."""
        return {"api_key": self._endpoint.key, "api_base": self._endpoint.base_url, "max_retries": 0}

    async def _open(self) -> Litellm:
        async with self._opening:
            if self._module is None:
                self._module = await asyncio.to_thread(_import)
            return self._module

    def _request(self, model: str, prompt: Prompt, params: CallParams, left: LeftOut) -> dict[str, Json]:
        prefix, name = split_model(model)
        messages = left.messages(prompt)
        if prefix in NATIVE and "claude" in name:
            messages = cacheable(messages)
        request: dict[str, Json] = {
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": params.max_output_tokens,
            **self._access,
            "num_retries": 0,
            "drop_params": True,
            "_skip_mcp_handler": True,  # it would import litellm's proxy at the first tool
            **sampling_json(params),
            **options_json(prompt),
        }
        return left.body(request, params.thinking, litellm_thinking(name, params.thinking, params.max_output_tokens))


async def _payloads(chunks: AsyncGenerator[BaseModel, None]) -> AsyncGenerator[bytes, None]:
    async for chunk in chunks:
        yield b"data: %b\n" % chunk.model_dump_json().encode()
    yield b"data: [DONE]\n"


def _named(litellm: Litellm, model: str) -> str:
    """The model as litellm calls it; a provider that it does not know speaks as OpenAI does."""
    prefix, name = split_model(model)
    return f"{prefix if prefix in litellm.provider_list else 'openai'}/{name}"


def _import() -> Litellm:
    os.environ.update(_ENVIRONMENT)
    litellm = cast("Litellm", import_module("litellm"))
    handler = import_module("litellm.llms.custom_httpx.http_handler").AsyncHTTPHandler
    handler.create_client = bounding(handler.create_client)
    openai = import_module("litellm.llms.openai.common_utils").BaseOpenAILLM
    openai._get_async_http_client = staticmethod(bounding(openai._get_async_http_client))
    litellm.telemetry = False
    litellm.suppress_debug_info = True
    litellm.disable_aiohttp_transport = True
    return litellm


def cacheable(messages: Sequence[JsonObject]) -> list[JsonObject]:
    """Mark the last system and the last user message: Claude caches a prompt only up to marked places."""
    places = {role: place for place, message in enumerate(messages) if (role := message["role"]) in ("system", "user")}
    return [_marked(message) if place in places.values() else message for place, message in enumerate(messages)]


def _marked(message: JsonObject) -> JsonObject:
    match message["content"]:
        case [*pictures, {"text": text}]:
            pass
        case text:
            pictures = []
    return {**message, "content": [*pictures, {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]}


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise translate(error) from error


def translate(error: Exception) -> ModelError:
    """Convert litellm's exception to ours, by status and text, unless it comes from one of ours."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModelError):
            return cause
        cause = cause.__cause__ or cause.__context__
    text = str(getattr(error, "message", None) or error)
    inner = _INNER_MESSAGE.search(text)
    message = loads(f'"{inner.group(1)}"') if inner else _PREFIXES.sub("", text)
    code = getattr(error, "code", None)
    status = getattr(error, "status_code", None)
    known = status if isinstance(status, int) else None, code if isinstance(code, str) else None
    return replace(classify(*known, text, _headers(error), wait_in(text, message)), message=message, words=message)


def _headers(error: Exception) -> Mapping[str, str]:
    headers = getattr(error, "litellm_response_headers", None) or getattr(
        getattr(error, "response", None), "headers", None
    )
    return headers if isinstance(headers, Mapping) else {}

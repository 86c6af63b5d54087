"""Any server that speaks OpenAI's chat or responses protocol, over HTTP without the official SDK.

The SDK costs 1.1 CPU s to import and twice the CPU per request, and would only pass bytes on.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from io import BytesIO
from typing import TYPE_CHECKING

from gateway.domain.conversation.model import Prompt
from gateway.domain.json import Json, JsonObject
from gateway.domain.settings import CallParams
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.protocol.answer_reader import in_one_line, read_answer
from gateway.llm.protocol.bounds import bounded
from gateway.llm.protocol.http import HttpClient
from gateway.llm.protocol.ollama import OllamaChat
from gateway.llm.protocol.refused_parts import OTHER_NAME, SUMMARY, LeftOut, Request, asked
from gateway.llm.protocol.responses import STATELESS, as_chat, responses_request
from gateway.llm.protocol.thinking import ThinkingFilter
from gateway.llm.protocol.whole import read_recording, read_transcription, read_vectors
from gateway.llm.protocol.wire import options_json, sampling_json, thinking_json
from gateway.llm.provider import Provider, ProviderEvents, Transcription
from gateway.llm.vendors import Endpoint, split_model

if TYPE_CHECKING:
    from aiohttp import FormData

_WHOLE_S = 120.0
"""Seconds for an answer that isn't streamed."""
_WHOLE = ("application/json", "text/html")
"""Bodies that are read whole, streams among them: some proxies call all they send a page."""
_MAX_WHOLE_BYTES = 16 * 2**20


def build(endpoint: Endpoint) -> Provider:
    """The provider of one endpoint."""
    return OpenAIProvider(endpoint)


class OpenAIProvider:
    """One endpoint, one connection pool. Once a model refuses a parameter, it is no longer sent."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._http = HttpClient(with_path(endpoint.address), endpoint.key)
        self._ollama = OllamaChat(endpoint) if endpoint.is_ollama else None
        self._speaks_ollama = True

    async def warm(self) -> None:
        """Import the HTTP library, in a thread."""
        await self._http.open()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()
        if self._ollama is not None:
            await self._ollama.close()

    def stream(self, model: str, prompt: Prompt, params: CallParams, /) -> ProviderEvents:
        """Send one request, and another at once if the model refused an optional parameter."""
        self._require_key()
        _, name = split_model(model)

        def ask(left: LeftOut, thinking: ThinkingFilter) -> Request:
            body = self._body(name, prompt, params, left)
            return body, self._answer(name, body, left, thinking)

        return asked(ask, self._endpoint, model, prompt, params, self._endpoint.source(name))

    async def transcribe(self, model: str, name: str, mime: str, audio: bytes, /) -> Transcription:
        """Send one request; the answer is not streamed."""
        self._require_key()
        await self.warm()
        from aiohttp import FormData

        _, name_there = split_model(model)
        form = FormData({"model": name_there})
        form.add_field("file", BytesIO(audio), filename=name, content_type=mime)
        return read_transcription(*await self._whole("/audio/transcriptions", form))

    async def speak(self, model: str, voice: str, text: str, /) -> bytes:
        """Send one request, and another without the format if that may have been refused."""
        request = {"model": split_model(model)[1], "voice": voice, "input": text}
        try:
            answer, _ = await self._whole("/audio/speech", request | {"response_format": "opus"})
        except ModelError as error:
            if error.kind not in (ErrorKind.BAD_REQUEST, ErrorKind.SERVER):
                raise
            answer, _ = await self._whole("/audio/speech", request)
        return read_recording(answer)

    async def embed(self, model: str, texts: Sequence[str], /) -> Sequence[Sequence[float]]:
        """Send one request; that numbers are wanted goes without saying, which some servers would refuse."""
        answer, _ = await self._whole("/embeddings", {"model": split_model(model)[1], "input": list(texts)})
        return read_vectors(answer)

    def _require_key(self) -> None:
        if self._endpoint.lacks_key:
            raise ModelError(ErrorKind.AUTH, "no API key is configured")

    async def _whole(self, path: str, body: "JsonObject | FormData") -> tuple[bytes, str]:
        """The answer to one request that isn't streamed, and its type."""
        self._require_key()
        async with self._http.post(path, body, _WHOLE_S) as response:
            content, most = response.content.iter_any(), _MAX_WHOLE_BYTES
            return b"".join([piece async for piece in bounded(content, most, longest=most)]), response.content_type

    def _body(self, name: str, prompt: Prompt, params: CallParams, left: LeftOut) -> dict[str, Json]:
        vendor = self._endpoint.vendor
        limit = vendor.limit_field if self._endpoint.base_url is None else "max_tokens"
        limit = OTHER_NAME[limit] if limit in left.parts else limit
        body: dict[str, Json] = {
            "model": name,
            "messages": left.messages(prompt, short_ids=vendor.short_call_ids),
            "stream": True,
            "stream_options": {"include_usage": True},
            limit: params.max_output_tokens,
            **sampling_json(params),
            **options_json(prompt),
        }
        thinking = thinking_json(vendor.prefix, name, params.thinking)
        if left.by_responses:
            body |= STATELESS
            thinking |= {SUMMARY: "auto"} if thinking else {}
        return left.body(body, params.thinking, thinking)

    @asynccontextmanager
    async def _answer(
        self, name: str, body: dict[str, Json], left: LeftOut, thinking: ThinkingFilter
    ) -> AsyncGenerator[ProviderEvents, None]:
        responses = left.by_responses
        if self._ollama is not None and self._speaks_ollama and not responses:
            async with self._ollama.chunks(name, body) as chunks:
                if chunks is not None:
                    async with aclosing(read_answer(chunks, left.source, thinking)) as events:
                        yield events
                    return
            self._speaks_ollama = False
        path, request = ("/responses", responses_request(body)) if responses else ("/chat/completions", body)
        async with self._http.post(path, request) as response:
            content: AsyncIterator[bytes] = response.content.iter_any()
            content = in_one_line(content) if response.content_type in _WHOLE else content
            content = as_chat(content) if responses else content
            async with aclosing(read_answer(content, left.source, thinking)) as events:
                yield events


def with_path(base_url: str) -> str:
    """Append the usual path `/v1` to a bare host."""
    _, _, rest = base_url.rstrip("/").partition("://")
    return base_url if "/" in rest else f"{base_url.rstrip('/')}/v1"

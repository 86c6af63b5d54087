"""Everything that speaks the OpenAI chat protocol, through the official SDK.

Requests go through the SDK's generic `post` and answers are read from the bytes: the typed `create` costs five times
the CPU, most of it spent on walking over a prompt that we have just built.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from json import dumps
from typing import TYPE_CHECKING

from gateway.domain.json import Json
from gateway.domain.model import Prompt
from gateway.domain.settings import Params
from gateway.llm.catalog import split
from gateway.llm.endpoint import Endpoint
from gateway.llm.errors import ErrorKind, ModelError, classify
from gateway.llm.provider import Provider, ProviderEvent
from gateway.llm.reading import read_answer
from gateway.llm.wire import messages_json, sampling_json, tools_json

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

_OPTIONAL = frozenset({"temperature", "top_p", "stream_options", "max_tokens", "max_completion_tokens"})
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_CONNECT_S = 20.0
_KEPT_OPEN_S = 60.0
_HEARING_S = 120.0


def build(endpoint: Endpoint) -> Provider:
    """The provider of one endpoint."""
    return OpenAIProvider(endpoint)


class OpenAIProvider:
    """One endpoint, one connection pool. A parameter that a model refuses is left out from then on."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._client: AsyncOpenAI | None = None
        self._opening = asyncio.Lock()
        self._refused: dict[str, frozenset[str]] = {}

    async def warm(self) -> None:
        """Import the SDK and build its client (1.3 CPU s), in a thread."""
        await self._open()

    async def close(self) -> None:
        """Close the connection pool."""
        if self._client is not None:
            await self._client.close()

    async def stream(self, model: str, prompt: Prompt, params: Params, /) -> AsyncGenerator[ProviderEvent, None]:
        """One request; another at once where the model refused an optional parameter."""
        if self._endpoint.lacks_key:
            raise ModelError(ErrorKind.AUTH, "no API key is configured")
        _, name = split(model)
        answered = False
        while not answered:
            try:
                async with self._post(self._body(name, prompt, params)) as events:
                    async for event in events:
                        yield event
                answered = True
            except _ParameterRefused as refusal:
                self._refused[name] = self._refused.get(name, frozenset()) | {refusal.field}

    async def transcribe(self, model: str, name: str, audio: bytes, /) -> str:
        """One request, without the answer being streamed."""
        if self._endpoint.lacks_key:
            raise ModelError(ErrorKind.AUTH, "no API key is configured")
        client = self._client or await self._open()
        import httpx
        from openai import APIStatusError, OpenAIError

        _, listener = split(model)
        try:
            heard = await client.audio.transcriptions.create(model=listener, file=(name, audio), timeout=_HEARING_S)
        except APIStatusError as error:
            raise _status_error(error) from error
        except (OpenAIError, httpx.HTTPError) as error:
            raise ModelError(ErrorKind.NETWORK, f"{client.base_url.host}: {error.__cause__ or error}") from error
        return heard.text

    async def _open(self) -> "AsyncOpenAI":
        async with self._opening:
            if self._client is None:
                self._client = await asyncio.to_thread(_client, self._endpoint)
            return self._client

    def _body(self, name: str, prompt: Prompt, params: Params) -> dict[str, Json]:
        vendor, refused = self._endpoint.vendor, self._refused.get(name, frozenset())
        limit = vendor.limit_field if self._endpoint.base_url is None else "max_tokens"
        limit = _OTHER_NAME[limit] if limit in refused else limit
        body: dict[str, Json] = {
            "model": name,
            "messages": messages_json(prompt, short_ids=vendor.short_call_ids),
            "stream": True,
            "stream_options": {"include_usage": True},
            limit: params.max_output_tokens,
            **sampling_json(params),
        }
        if prompt.tools:
            body["tools"] = tools_json(prompt)
        return {field: value for field, value in body.items() if field not in refused}

    @asynccontextmanager
    async def _post(self, body: dict[str, Json]) -> AsyncGenerator[AsyncGenerator[ProviderEvent, None], None]:
        client = self._client or await self._open()
        import httpx
        from openai import APIStatusError, AsyncStream, OpenAIError

        try:
            stream = await client.post(
                "/chat/completions",
                cast_to=object,
                content=dumps(body).encode(),
                options={"headers": {"Content-Type": "application/json"}},
                stream=True,
                stream_cls=AsyncStream[object],
            )
            async with stream, aclosing(read_answer(stream.response.aiter_bytes())) as events:
                yield events
        except APIStatusError as error:
            raise _refusal(error, body) or _status_error(error) from error
        except (OpenAIError, httpx.HTTPError) as error:
            raise ModelError(ErrorKind.NETWORK, f"{client.base_url.host}: {error.__cause__ or error}") from error


class _ParameterRefused(Exception):
    """The model does not take an optional parameter."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field


def _client(endpoint: Endpoint) -> "AsyncOpenAI":
    import httpx
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    limits = httpx.Limits(max_connections=1000, max_keepalive_connections=100, keepalive_expiry=_KEPT_OPEN_S)
    http = DefaultAsyncHttpxClient(limits=limits, timeout=httpx.Timeout(None, connect=_CONNECT_S))
    address = with_path(endpoint.address)
    return AsyncOpenAI(api_key=endpoint.key or "none", base_url=address, max_retries=0, http_client=http)


def with_path(base_url: str) -> str:
    """A bare host gets the path that every server uses."""
    _, _, rest = base_url.rstrip("/").partition("://")
    return base_url if "/" in rest else f"{base_url.rstrip('/')}/v1"


def _refusal(error: "APIStatusError", body: dict[str, Json]) -> _ParameterRefused | None:
    unsupported = error.status_code == 400 and str(error.code).startswith("unsupported_")
    if unsupported and error.param in _OPTIONAL and error.param in body:
        return _ParameterRefused(error.param)
    return None


def _status_error(error: "APIStatusError") -> ModelError:
    match error.body:
        case {"message": str(message)} | str(message) if message:
            pass
        case _:
            message = error.message
    code = error.code if isinstance(error.code, str) else error.type
    return classify(error.status_code, code, message, error.response.headers)

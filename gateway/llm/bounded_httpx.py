"""Bounds for litellm's HTTP clients. Imports litellm: to be imported where that may take long."""

from collections.abc import AsyncIterator, Callable
from typing import ParamSpec, TypeVar

from httpx import AsyncByteStream, AsyncClient, Request, Response
from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler
from litellm.llms.openai.common_utils import BaseOpenAILLM

from gateway.llm.bounds import MAX_BYTES, MAX_REFUSAL, bounded, refuse_encoded
from gateway.llm.errors import ModelError

P = ParamSpec("P")
C = TypeVar("C", AsyncClient, AsyncClient | None)


_PIECE = 2**9
"""A few events: litellm takes a millisecond for each."""


class _BoundedStream(AsyncByteStream):
    def __init__(self, stream: AsyncByteStream, *, refused: bool) -> None:
        self._stream, self._refused = stream, refused

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """What is left out of a refusal makes it no other error."""
        try:
            async for piece in bounded(self._stream, MAX_REFUSAL if self._refused else MAX_BYTES, _PIECE):
                yield piece
        except ModelError:
            if not self._refused:
                raise

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _ask_for_plain(request: Request) -> None:
    request.headers["Accept-Encoding"] = "identity"


async def _bound(response: Response) -> None:
    refuse_encoded(response.status_code, response.headers)
    if isinstance(response.stream, AsyncByteStream):
        response.stream = _BoundedStream(response.stream, refused=response.is_error)


def _bounding(make: Callable[P, C]) -> Callable[P, C]:
    def make_bounded(*args: P.args, **kwargs: P.kwargs) -> C:
        client = make(*args, **kwargs)
        if client is not None:
            client.event_hooks = {"request": [_ask_for_plain], "response": [_bound]}
        return client

    return make_bounded


def install() -> None:
    """Bound what every client made from now on reads."""
    made = _bounding(BaseOpenAILLM._get_async_http_client)
    for owner, name, make in (
        (AsyncHTTPHandler, "create_client", _bounding(AsyncHTTPHandler.create_client)),
        (BaseOpenAILLM, "_get_async_http_client", staticmethod(made)),
    ):
        setattr(owner, name, make)

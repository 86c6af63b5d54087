"""Limits for httpx clients that litellm builds. Imports httpx."""

from collections.abc import AsyncIterator, Callable

from httpx import AsyncByteStream, AsyncClient, ByteStream, Request, Response

from gateway.llm.protocol.bounds import beginning, bounded, refuse_encoded

_PIECE = 2**9
"""A few events: litellm takes a millisecond for each."""


def bounding(make: Callable[..., AsyncClient | None]) -> Callable[..., AsyncClient | None]:
    """The same factory, whose clients read no more than our own does."""

    def make_bounded(*args: object, **kwargs: object) -> AsyncClient | None:
        client = make(*args, **kwargs)
        if client is not None:
            client.event_hooks = {"request": [_ask_for_plain], "response": [_bound]}
        return client

    return make_bounded


class _BoundedStream(AsyncByteStream):
    def __init__(self, stream: AsyncByteStream) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[bytes]:
        return bounded(self._stream, size=_PIECE)

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _ask_for_plain(request: Request) -> None:
    request.headers["Accept-Encoding"] = "identity"


async def _bound(response: Response) -> None:
    refuse_encoded(response.status_code, response.headers)
    stream = response.stream
    assert isinstance(stream, AsyncByteStream), "an asynchronous client has no other"
    if response.is_error:
        response.stream = ByteStream(await beginning(stream))
        await stream.aclose()
    else:
        response.stream = _BoundedStream(stream)

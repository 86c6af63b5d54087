"""Bounds for clients of httpx that others make. Imports httpx."""

from collections.abc import AsyncIterator, Callable

from httpx import AsyncByteStream, AsyncClient, Request, Response

from gateway.llm.bounds import MAX_BYTES, MAX_REFUSAL, bounded, refuse_encoded
from gateway.llm.errors import ModelError

_PIECE = 2**9
"""A few events: litellm takes a millisecond for each."""


def bounding(make: Callable[..., AsyncClient | None]) -> Callable[..., AsyncClient | None]:
    """The same factory, of clients that read no more than our own does."""

    def make_bounded(*args: object, **kwargs: object) -> AsyncClient | None:
        client = make(*args, **kwargs)
        if client is not None:
            client.event_hooks = {"request": [_ask_for_plain], "response": [_bound]}
        return client

    return make_bounded


class _BoundedStream(AsyncByteStream):
    def __init__(self, stream: AsyncByteStream, *, refused: bool) -> None:
        self._stream, self._refused = stream, refused

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The rest of a long refusal is left out, for what it is does not change."""
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

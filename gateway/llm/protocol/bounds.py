"""Limits of one answer, so that a model that never ends harms nobody, and its share of the event loop."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Mapping
from contextlib import suppress
from time import monotonic, thread_time
from typing import TYPE_CHECKING

from gateway.llm.errors import ErrorKind, ModelError, classify

if TYPE_CHECKING:
    from httpx import AsyncClient, Response

MAX_BYTES = 64 * 2**20
"""Of an answer as sent: a long one, a token at a time, in the most verbose of events."""
MAX_LINE_BYTES = 2**20
MAX_CHARS = 2**20
"""Of text, reasoning, names and arguments together: twice as much as any model writes at once."""
MAX_CALLS = 64
MAX_NAME = 256
MAX_REFUSAL_BYTES = 2**16
PIECE_BYTES = 2**12

_REST_RATIO = 4.0
"""The rest after each piece, as a multiple of the time it took, while a stream never pauses: other tasks run then."""
_LONGEST_REST_S = 0.25
_MAX_ITEMS = 10_000
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)


def endless(what: str) -> ModelError:
    """The error for an answer past a bound."""
    return ModelError(ErrorKind.ENDLESS, f"the answer does not end: {what}")


async def bounded(
    body: AsyncIterable[bytes], most: int = MAX_BYTES, size: int = PIECE_BYTES, longest: int = MAX_LINE_BYTES
) -> AsyncGenerator[bytes, None]:
    """The body in pieces of this size at most; raises `ModelError` past `most` bytes, or `longest` in one line."""
    total = line = fed = 0
    rested, left, waited = thread_time(), monotonic(), 0.0
    async for data in body:
        waited += monotonic() - left
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            total += len(piece)
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
            line = line + len(piece) if end < 0 else len(piece) - end - 1
            if total > most:
                raise endless(f"more than {most:,} bytes")
            if line > longest:
                raise endless(f"a line of more than {longest:,} bytes")
            yield piece
            fed += len(piece)
            if fed >= size:
                await asyncio.sleep(min(max(_REST_RATIO * (thread_time() - rested) - waited, 0.0), _LONGEST_REST_S))
                rested, fed, waited = thread_time(), 0, 0.0
        left = monotonic()


async def beginning(body: AsyncIterable[bytes]) -> bytes:
    """The first 64 KB of a refusal, which name the error."""
    read = bytearray()
    with suppress(ModelError):
        async for piece in bounded(body, MAX_REFUSAL_BYTES):
            read += piece
    return bytes(read)


def refuse_encoded(status: int, headers: Mapping[str, str], *readable: str) -> None:
    """Raise `ModelError` for a compressed body, unless it is `readable` piece by piece: it may unpack to a huge one."""
    encoding = headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity", *readable):
        problem = f"the answer is compressed ({encoding[:40]}), which was not asked for"
        if status >= 400:
            raise classify(status, None, f"HTTP status {status}, and {problem}", headers)
        raise endless(problem)


def check_part_count(payload: bytes) -> None:
    """Raise `ModelError` for JSON with so many parts that parsing it would take long and much memory."""
    if len(payload) > PIECE_BYTES:
        bare = _STRING.sub(b"", payload)
        if bare.count(b",") + bare.count(b"[") + bare.count(b"{") > _MAX_ITEMS:
            raise endless(f"an event of more than {_MAX_ITEMS:,} parts")


_HTTPX_PIECE = 2**9
"""A few events: litellm takes a millisecond for each."""


def bounding(make: "Callable[..., AsyncClient | None]") -> "Callable[..., AsyncClient | None]":
    """The same factory of httpx clients, which read no more than our own does. Imports httpx."""
    from httpx import AsyncByteStream, ByteStream

    class Bounded(AsyncByteStream):
        def __init__(self, stream: AsyncByteStream) -> None:
            self._stream = stream

        def __aiter__(self) -> AsyncIterator[bytes]:
            return bounded(self._stream, size=_HTTPX_PIECE)

        async def aclose(self) -> None:
            await self._stream.aclose()

    async def bound(response: "Response") -> None:
        refuse_encoded(response.status_code, response.headers)
        stream = response.stream
        assert isinstance(stream, AsyncByteStream), "an asynchronous client has no other"
        if response.is_error:
            response.stream = ByteStream(await beginning(stream))
            await stream.aclose()
        else:
            response.stream = Bounded(stream)

    def make_bounded(*args: object, **kwargs: object) -> "AsyncClient | None":
        client = make(*args, **kwargs)
        if client is not None:
            client.headers["Accept-Encoding"] = "identity"
            client.event_hooks = {"response": [bound]}
        return client

    return make_bounded

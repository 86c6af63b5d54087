"""Bodies of answers, within limits of size and time, also once they are unpacked. Imports httpx2."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from httpx2 import AsyncByteStream

from gateway.net.errors import NetError

_UNPACKED_AT_ONCE = 2**18
_SMALLEST_PIECES = 512
"""Bytes that the pieces of a body must have on average: a body in single bytes costs seconds of CPU."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one answer: bytes, unpacked, and seconds for all of it; None for a stream that goes on."""

    size: int = 10 * 2**20
    seconds: float | None = 20.0


PAGE = Limits()


@dataclass(slots=True)
class Bounded(AsyncByteStream):
    """The body as `unpack` makes it; raises `NetError` beyond the limits."""

    stream: AsyncByteStream
    limits: Limits
    until: float | None
    """The event loop's time at which it must have come."""
    host: str
    encoding: str = ""
    _taken: int = field(default=0, init=False)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yields to other tasks after each piece, though a fast server never makes it wait."""
        unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if self.encoding else None
        source, pieces = aiter(self.stream), 0
        while (piece := await self._next(source)) is not None:
            pieces += 1
            if pieces > 1_000 + self.limits.size // _SMALLEST_PIECES and self.limits.seconds:
                raise NetError("too_slow", f"{self.host} sends its response in tiny chunks; it wasn't read.")
            for part in self._unpacked(unpack, piece) if unpack else (piece,):
                self._count(part)
                yield part
            await asyncio.sleep(0)

    async def aclose(self) -> None:
        """Close the connection, unless all was read."""
        await self.stream.aclose()

    async def _next(self, source: AsyncIterator[bytes]) -> bytes | None:
        async with within(self.until, self.host):
            return await anext(source, None)

    def _unpacked(self, unpack: "zlib._Decompress", piece: bytes) -> Iterator[bytes]:
        try:
            while piece and not unpack.eof:
                yield unpack.decompress(piece, _UNPACKED_AT_ONCE)
                piece = unpack.unconsumed_tail
        except zlib.error:
            raise NetError("bad_encoding", f"{self.host} sends damaged compressed data.") from None

    def _count(self, piece: bytes) -> None:
        self._taken += len(piece)
        if self._taken > self.limits.size:
            raise NetError("too_large", f"The response from {self.host} is larger than {self.limits.size >> 20} MB.")


@asynccontextmanager
async def within(until: float | None, host: str) -> AsyncIterator[None]:
    """Raise `NetError` when the work inside is not done `until` then, by the event loop's time."""
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError:
        raise NetError("timeout", f"{host} took too long; try again later.") from None

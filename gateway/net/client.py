"""The one way to addresses that are not the operator's own: an httpx2 client whose every connection is checked.

A name is looked up and each of its addresses checked when the connection is made, which then goes to a checked one:
what a name answers later, or a redirect, leads nowhere else. Host and TLS keep the name. Bodies are read within
limits of size and time, also once they are unpacked. Imports httpx2."""

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from itertools import zip_longest
from ssl import SSLContext, create_default_context

import certifi
from anyio import Event, create_task_group, move_on_after
from httpcore2 import (
    AnyIOBackend,
    AsyncConnectionPool,
    AsyncNetworkBackend,
    AsyncNetworkStream,
    ConnectError,
    ConnectTimeout,
)
from httpx2 import AsyncByteStream, AsyncClient, AsyncHTTPTransport, HTTPError, Request, Response, Timeout
from httpx2 import ConnectError as NotConnected

from gateway.net.addresses import Rules, checked_addresses, parse_url
from gateway.net.errors import NetError

_UNPACKED_AT_ONCE = 2**18
_SMALLEST_PIECES = 512
"""The least average size of the pieces of a body, in bytes: single bytes would cost seconds of CPU."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one answer: its bytes, unpacked, and its seconds in total; None for a stream without an end."""

    size: int = 10 * 2**20
    seconds: float | None = 20.0


PAGE = Limits()


@dataclass(slots=True)
class Bounded(AsyncByteStream):
    """The unpacked body; raises `NetError` beyond the limits."""

    stream: AsyncByteStream
    limits: Limits
    until: float | None
    """The deadline, by the event loop's clock."""
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
    """Raise `NetError` if the block isn't done at `until`, by the event loop's clock."""
    try:
        async with asyncio.timeout_at(until):
            yield
    except TimeoutError:
        raise NetError("timeout", f"{host} took too long; try again later.") from None


MAX_HEADERS = 200
_CONNECT_SECONDS = 10.0
_ADDRESSES = 4
"""How many addresses of one name are tried."""
_NEXT_ATTEMPT_SECONDS = 0.25
_CONNECTIONS = 8

NO_CONNECTION = (ConnectError, ConnectTimeout)
FindRules = Callable[[], Rules]
"""Gives the current rules at each request, so that an edited configuration applies at once."""


def guarded(
    rules: FindRules, limits: Limits = PAGE, headers: Mapping[str, str] | None = None, trusted: SSLContext | None = None
) -> AsyncClient:
    """A client that connects where the rules allow and reads answers within the limits; close it after use.

    It takes no proxy, `.netrc` or anything else from the environment. It follows no redirect: `fetch.get_page` does.
    Its requests raise `NetError` and the errors of httpx2, which `translated_errors` turns into `NetError`.
    """
    agent = {"User-Agent": f"Mozilla/5.0 (compatible; SupaClaw/{version('supaclaw')})"}
    timeout = Timeout(limits.seconds, connect=_CONNECT_SECONDS)
    transport = _Transport(rules, limits, trusted or certificates())
    return AsyncClient(transport=transport, trust_env=False, timeout=timeout, headers={**agent, **(headers or {})})


@contextmanager
def translated_errors(host: str) -> Iterator[None]:
    """Raise the errors of httpx2 as `NetError`."""
    try:
        yield
    except HTTPError as error:
        raise translate_error(host, error) from error


@cache
def certificates() -> SSLContext:
    """The system's certificates, or certifi's on systems that have none. Reading them takes 20 ms."""
    context = create_default_context()
    context.load_verify_locations(certifi.where())
    return context


class Network(AsyncNetworkBackend):
    """Connects to checked addresses only."""

    def __init__(self, rules: FindRules) -> None:
        self._rules, self._backend = rules, AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[object] | None = None,  # noqa: ARG002 - nobody sets any
    ) -> AsyncNetworkStream:
        """Connect to the first address that accepts, all of them checked; raises `NetError`.

        As Happy Eyeballs (RFC 8305): the next address is tried as soon as one fails, or after a moment without an
        answer, so a family of addresses that leads nowhere delays the connection but doesn't prevent it.
        """
        failure: Exception = ConnectError(f"{host} has no address")
        connected: AsyncNetworkStream | None = None

        async def attempt(address: str, failed: Event) -> None:
            nonlocal connected, failure
            try:
                stream = await self._backend.connect_tcp(address, port, timeout, local_address)
            except NO_CONNECTION as error:
                failure = error
                failed.set()
            else:
                attempts.cancel_scope.cancel()
                if connected is None:
                    connected = stream
                else:
                    await stream.aclose()

        addresses = _alternating(await checked_addresses(host, port, self._rules()))
        async with create_task_group() as attempts:
            for address in addresses[:_ADDRESSES]:
                failed = Event()
                attempts.start_soon(attempt, address, failed)
                with move_on_after(_NEXT_ATTEMPT_SECONDS):
                    await failed.wait()
        if connected is None:
            raise failure
        return connected


def _alternating(addresses: Iterable[str]) -> list[str]:
    """The addresses in their order, but with IPv6 and IPv4 in turn, so that the first few include both."""
    families: dict[bool, list[str]] = {}
    for address in addresses:
        families.setdefault(":" in address, []).append(address)
    return [address for row in zip_longest(*families.values()) for address in row if address]


class _Transport(AsyncHTTPTransport):
    """Checks each request before it leaves and each answer's head when it comes, and bounds its body."""

    def __init__(self, rules: FindRules, limits: Limits, trusted: SSLContext) -> None:
        super().__init__(verify=trusted, trust_env=False)
        self._rules, self._limits = rules, limits
        self._pool = AsyncConnectionPool(
            ssl_context=trusted, max_connections=_CONNECTIONS, keepalive_expiry=30, network_backend=Network(rules)
        )

    async def handle_async_request(self, request: Request) -> Response:
        """Raises `NetError` and the errors of httpx2."""
        target, seconds = parse_url(str(request.url)), self._limits.seconds
        self._rules().admit(target)
        request.headers["Accept-Encoding"] = "gzip"
        until = None if seconds is None else asyncio.get_running_loop().time() + seconds
        async with within(until, target.host):
            response = await super().handle_async_request(request)
        response.request = request
        encoding = response.headers.get("Content-Encoding", "").strip().lower()
        stream = response.stream
        assert isinstance(stream, AsyncByteStream), "an asynchronous transport has no other"
        if problem := _problem(response, encoding, self._limits.size):
            await stream.aclose()
            raise NetError(problem[0], f"{target.host} {problem[1]}")
        response.headers.pop("Content-Encoding", None)
        response.stream = Bounded(stream, self._limits, until, target.host, "" if encoding == "identity" else encoding)
        return response


def _problem(response: Response, encoding: str, most: int) -> tuple[str, str] | None:
    """The problem with the head of a response, as a code and words; None if there is none."""
    if len(response.headers.raw) > MAX_HEADERS:
        return "bad_answer", f"sends more than {MAX_HEADERS} headers; its response wasn't read."
    if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
        return "bad_encoding", "uses a compression that wasn't requested."
    length = response.headers.get("Content-Length", "0")
    if response.request.method != "HEAD" and length.isdecimal() and int(length[:18]) > most:
        return "too_large", f"sends {int(length[:18]) >> 20:,} MB; the limit is {most >> 20} MB."
    return None


def translate_error(host: str, error: HTTPError) -> NetError:
    """The `NetError` for an error of httpx2."""
    text = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in text:
        reason = text.partition("certificate verify failed: ")[2].partition(" (_ssl")[0]
        return NetError("bad_certificate", f"{host} has no valid certificate ({reason or 'unknown'}); it was not read.")
    if "SSL" in text or "TLS" in text:
        return NetError("tls", f"No secure connection to {host} is possible; check that it supports https there.")
    if isinstance(error, NotConnected):
        return NetError("unreachable", f"{host} can't be reached; try again later, or another address.")
    if "timed out" in text.lower() or "Timeout" in type(error).__name__:
        return NetError("timeout", f"{host} took too long; try again later.")
    return NetError("bad_answer", f"{host} doesn't respond like a web server ({type(error).__name__}).")

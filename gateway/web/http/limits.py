"""Limits against floods and guessing: of connections and their bodies, of requests, of failed attempts."""

import asyncio
import math
import re
import resource
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_network
from typing import Any

import h11
from cachetools import LRUCache
from uvicorn import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from gateway.domain.time import Clock
from gateway.net.addresses import parse_ip
from gateway.store.connection.pool import Database
from gateway.store.people import tokens
from gateway.store.people.tokens import LiveToken
from gateway.web.http.errors import Refused
from gateway.web.http.headers import Proxies, is_proxy

ALL = 512
"""Open connections, far below the number of files that a process may open (1,024)."""
WAITING = 256
"""Connections of one client without an admitted request: programs on one machine, browsers behind one address."""
ADMITTED = 256
"""Connections of one credential, so that others have room."""
HEADER_SECONDS = 10.0
"""For all headers of a request; honest clients send them in one piece."""
LINGER_SECONDS = 2.0
"""Until a connection with an unread body is closed."""
LINGER_BYTES = 32 * 1024 * 1024
"""Bytes of such a body that are discarded: many clients send all of it before they read the response."""
LINGERING = 8
"""Connections whose bodies are discarded at the same time; those of others stay unread."""
PIECE = 16 * 1024
"""Bytes that are parsed without a pause: 2,700 chunks of one byte each take 15 ms."""

_END_OF_HEADERS = re.compile(rb"\n\r?\n")


class Connections:
    """All open connections, oldest first. Where there are too many, the oldest without an admitted request is closed.

    A client with many connections loses its own; a request with a valid credential is safe until it is answered.
    """

    def __init__(self, proxies: Proxies | None) -> None:
        self._proxies = proxies
        allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self._most = ALL if allowed == resource.RLIM_INFINITY else min(ALL, allowed // 2)
        self._waiting: dict[Connection, str | None] = {}
        self._admitted: dict[Connection, str] = {}
        self.lingering: set[Connection] = set()

    def idle(self, connection: "Connection", peer: str) -> None:
        """Count it as waiting for headers; until then a connection of the proxy belongs to no client."""
        self.wait(connection, None if self._proxies is not None and is_proxy(peer, self._proxies) else canonical(peer))

    def wait(self, connection: "Connection", client: str | None) -> None:
        """Count it for this client, without an admitted request."""
        self._admitted.pop(connection, None)
        self._waiting[connection] = client
        own = [each for each, whose in self._waiting.items() if whose == client]
        if client is not None and len(own) > WAITING:
            own[0].cut()
        elif len(self._waiting) + len(self._admitted) > self._most:
            next(iter(self._waiting)).cut()

    def admit(self, connection: "Connection", account: str) -> bool:
        """Count it for this credential; False if that has too many."""
        if list(self._admitted.values()).count(account) >= ADMITTED:
            return False
        self._waiting.pop(connection, None)
        self._admitted[connection] = account
        return True

    def closed(self, connection: "Connection") -> None:
        """Stop counting it."""
        self._waiting.pop(connection, None)
        self._admitted.pop(connection, None)
        self.lingering.discard(connection)


class Connection(H11Protocol):
    """uvicorn's protocol, with a deadline for headers, and bodies parsed only as far as the application reads them.

    The lifespan's state holds the `connections`; the state of every request holds its `connection`.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, "connection": self}, _loop)
        self._all: Connections = app_state["connections"]
        self._unparsed = bytearray()
        self._read_cycle: object = None
        self._deadline: asyncio.TimerHandle | None = None
        self._lingers = False
        self._to_discard = 0

    # --- called by the guard ---

    def of_client(self, client: str) -> None:
        """Count the connection for its client, now that the headers name it."""
        if not self.transport.is_closing():
            self._all.wait(self, canonical(client))

    def of_caller(self, account: str) -> bool:
        """Count the connection for its credential; False if that has too many requests open."""
        return self.transport.is_closing() or self._all.admit(self, account)

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the deadline for headers."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self._read_on)
        self._end_within(HEADER_SECONDS)
        self._idle()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting it."""
        self._all.closed(self)
        self._end_within(None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse as far as the application reads."""
        if self._lingers:
            self._discard(len(data))
            return
        self._unparsed += data
        self._parse()

    # --- called by uvicorn ---

    def on_response_complete(self) -> None:
        """Wait for the next request, unless the body of this one is still coming."""
        self._idle()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing():
            self._linger()
            return
        super().on_response_complete()
        self._parse()
        if not self._unparsed:
            FlowControl.resume_reading(self.flow)

    def cut(self) -> None:
        """Close the connection without finishing the response."""
        self._all.closed(self)
        self.transport.abort()

    def _idle(self) -> None:
        self._all.idle(self, self.client[0] if self.client else "0.0.0.0")

    def _linger(self) -> None:
        """End the connection instead of reading a refused body; closing it immediately could destroy the response."""
        self._lingers = True
        self._unparsed.clear()
        self.transport.write_eof()
        self._end_within(LINGER_SECONDS)
        if len(self._all.lingering) < LINGERING:
            self._all.lingering.add(self)
            self._to_discard = LINGER_BYTES
            self.flow.resume_reading()
        else:
            self.flow.pause_reading()

    def _discard(self, size: int) -> None:
        """Discard one piece per turn of the event loop."""
        self._to_discard -= size
        self.flow.pause_reading()
        if self._to_discard > 0:
            self.loop.call_soon(self.flow.resume_reading)

    def _read_on(self) -> None:
        """Parse on: the application reads more of the body."""
        if not self._lingers:
            self._read_cycle = self.cycle
            self._parse()

    def _parse(self) -> None:
        while self._unparsed and (size := self._wanted()) and not self.transport.is_closing():
            piece = bytes(self._unparsed[:size])
            del self._unparsed[:size]
            super().data_received(piece)
        if self._unparsed:
            self.flow.pause_reading()
        if self.conn.their_state is not h11.IDLE:
            self._end_within(None)
        elif self._deadline is None:
            self._end_within(HEADER_SECONDS)

    def _wanted(self) -> int:
        """The number of bytes to parse now: up to the end of headers, or a piece of a body being read."""
        if self.conn.their_state is h11.IDLE:
            end = _END_OF_HEADERS.search(self._unparsed)
            return end.end() if end else len(self._unparsed)
        is_read = self.conn.their_state is h11.SEND_BODY and self._read_cycle is self.cycle and not self.cycle.body
        return PIECE if is_read else 0

    def _end_within(self, seconds: float | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.cut)


class _Flow(FlowControl):
    """Calls `wanted` when the application reads more of the body."""

    def __init__(self, transport: asyncio.Transport, wanted: Callable[[], None]) -> None:
        super().__init__(transport)
        self._wanted = wanted

    def resume_reading(self) -> None:
        if not self._transport.is_closing():
            super().resume_reading()
            self._wanted()


BURST = 20.0
PER_SECOND = 1.0
_REMEMBERED = 10_000


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


@dataclass(slots=True)
class _Buckets:
    """One bucket per name; drops the one used least recently if there are too many."""

    clock: Clock
    burst: float = BURST
    per_second: float = PER_SECOND
    _buckets: LRUCache[str, _Bucket] = field(default_factory=lambda: LRUCache(_REMEMBERED))

    def _filled(self, name: str) -> _Bucket:
        now = self.clock.monotonic()
        bucket = self._buckets.setdefault(name, _Bucket(self.burst, now))
        bucket.level = min(self.burst, bucket.level + (now - bucket.at) * self.per_second)
        bucket.at = now
        return bucket


class RateLimiter(_Buckets):
    """Limits the requests per caller."""

    def spend(self, caller: str) -> None:
        """Count a request; raises `Refused` if the caller exceeds its rate."""
        bucket = self._filled(caller)
        if bucket.level < 1:
            wait = math.ceil((1 - bucket.level) / self.per_second)
            message = f"Too many requests: the limit is {self.per_second * 60:.0f} a minute."
            raise Refused(429, "rate_limited", message, headers={"Retry-After": str(wait)})
        bucket.level -= 1


class Throttle(_Buckets):
    """Counts the failed attempts per client, loopback included. It never delays a valid credential."""

    def failed(self, client: str, refused: Refused) -> Refused:
        """Count a failure; returns the error to send: `refused`, or 429 after too many."""
        bucket = self._filled(canonical(client))
        bucket.level = max(bucket.level - 1, -1)
        if bucket.level >= 0:
            return refused
        message = "Too many failed attempts; check the credential, and wait a minute."
        return Refused(429, "rate_limited", message, headers={"Retry-After": "60"})


@dataclass(slots=True)
class CredentialLookups:
    """Looks credentials up in the database, one at a time, except for those that were valid the last time.

    Wrong credentials, however many, keep one connection busy, and valid ones in use never wait for them.
    """

    _valid: LRUCache[str, None] = field(default_factory=lambda: LRUCache(_REMEMBERED))
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def find(self, database: Database, plain: str) -> LiveToken | None:
        """The credential unless it was revoked; raises `TryAgainLater`."""
        digest = tokens.sha256(plain)
        async with nullcontext() if digest in self._valid else self._one_at_a_time:
            row = await tokens.find(database, plain)
        if row is None:
            self._valid.pop(digest, None)
        else:
            self._valid[digest] = None
        return row


def canonical(client: str) -> str:
    """One name per client: unmaps IPv4 addresses, and counts an IPv6 network as one client."""
    address = parse_ip(client.partition("%")[0])
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return client if address is None else str(address)

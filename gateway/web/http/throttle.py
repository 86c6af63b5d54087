"""Token buckets, against credential guessing and floods of requests."""

import asyncio
import ipaddress
import math
from dataclasses import dataclass, field

from gateway.domain.clock import Clock
from gateway.store.connection.pool import Database
from gateway.store.people import tokens
from gateway.store.people.tokens import LiveToken
from gateway.web.http.errors import Refused

BURST = 20.0
PER_SECOND = 1.0
_REMEMBERED = 10_000


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


@dataclass(slots=True)
class _Buckets:
    """One bucket per name; drops the oldest if there are too many."""

    clock: Clock
    burst: float = BURST
    per_second: float = PER_SECOND
    _buckets: dict[str, _Bucket] = field(default_factory=dict)

    def _filled(self, name: str) -> _Bucket:
        now = self.clock.monotonic()
        bucket = self._buckets.setdefault(name, _Bucket(self.burst, now))
        bucket.level = min(self.burst, bucket.level + (now - bucket.at) * self.per_second)
        bucket.at = now
        if len(self._buckets) > _REMEMBERED:
            del self._buckets[next(iter(self._buckets))]
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
    """Counts the failed attempts per client, loopback included. It never stands in the way of a valid credential."""

    def failed(self, client: str, refused: Refused) -> Refused:
        """Count a failure; returns the error to send: `refused`, or 429 after too many."""
        bucket = self._filled(canonical(client))
        bucket.level = max(bucket.level - 1, -1)
        if bucket.level >= 0:
            return refused
        message = "Too many failed attempts; check the credential, and wait a minute."
        return Refused(429, "rate_limited", message, headers={"Retry-After": "60"})


@dataclass(slots=True)
class Lookups:
    """Looks credentials up in the database, one at a time, except for those that were found before.

    However many wrong ones are sent, they keep one connection busy, and nobody with a credential in use waits for them.
    """

    _found: set[str] = field(default_factory=set)
    _one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def find(self, database: Database, plain: str) -> LiveToken | None:
        """The credential unless it was revoked; raises `TryAgainLater`."""
        digest = tokens.sha256(plain)
        if digest in self._found:
            return await tokens.find(database, plain)
        async with self._one_at_a_time:
            row = await tokens.find(database, plain)
        if row is not None and len(self._found) < _REMEMBERED:
            self._found.add(digest)
        return row


def canonical(client: str) -> str:
    """One name per client: unmaps IPv4 addresses, and counts an IPv6 network as one client."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)

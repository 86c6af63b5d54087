"""Token buckets, against credential guessing and floods of requests."""

import ipaddress
import math
from dataclasses import dataclass, field

from gateway.domain.clock import Clock
from gateway.web.errors import Refused

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
    """Limits the failed attempts per client; loopback is not exempt."""

    def admit(self, client: str) -> None:
        """Raises `Refused` for a client with too many recent failures."""
        if self._filled(canonical(client)).level < 1:
            message = "Too many failed attempts; wait a minute."
            raise Refused(429, "rate_limited", message, headers={"Retry-After": "60"})

    def failed(self, client: str) -> None:
        """Count a failure."""
        self._filled(canonical(client)).level -= 1


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

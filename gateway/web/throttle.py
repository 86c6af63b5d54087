"""A token bucket per client, for failed sign-ins: guessing stays slow, whoever guesses."""

import ipaddress
from dataclasses import dataclass

from gateway.domain.clock import Clock
from gateway.web.errors import Refused

BURST = 20.0
PER_SECOND = 1.0
_REMEMBERED = 10_000


@dataclass(slots=True)
class _Bucket:
    level: float
    at: float


class Throttle:
    """Counts failures; loopback is a client like any other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._buckets: dict[str, _Bucket] = {}

    def admit(self, client: str) -> None:
        """Raises `Refused` for a client that failed too often to be listened to now."""
        if self._filled(client).level < 1:
            message = "Too many failed attempts; wait a minute."
            raise Refused(429, "rate_limited", message, headers={"Retry-After": "60"})

    def failed(self, client: str) -> None:
        """One more failure."""
        self._filled(client).level -= 1

    def _filled(self, client: str) -> _Bucket:
        now = self._clock.monotonic()
        bucket = self._buckets.setdefault(canonical(client), _Bucket(BURST, now))
        bucket.level = min(BURST, bucket.level + (now - bucket.at) * PER_SECOND)
        bucket.at = now
        if len(self._buckets) > _REMEMBERED:
            del self._buckets[next(iter(self._buckets))]
        return bucket


def canonical(client: str) -> str:
    """One name per client: a mapped IPv4 address is that IPv4 address, and an IPv6 network counts as one."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)

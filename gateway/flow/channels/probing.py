"""Tries a channel's credentials, beside the gateway that is using them where the platform allows it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.domain.channels.channel import ProbedChannel
from gateway.domain.clock import Clock
from gateway.domain.errors import SupaclawError
from gateway.flow.channels.manager import ChannelSpec

PROBE_SECONDS = 20.0


async def probe(spec: ChannelSpec) -> str | None:
    """Our name on the platform; None for one that cannot be asked. Raises `SupaclawError` or `TimeoutError`."""
    channel = spec.make()
    if not isinstance(channel, ProbedChannel):
        return None
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            return await channel.probe()
    finally:
        await channel.close()


@dataclass(frozen=True, slots=True)
class ChannelProbes:
    """Probes channels for the page; `results` has the last one of each, in words."""

    spec: Callable[[str], ChannelSpec]
    clock: Clock
    results: dict[str, str] = field(default_factory=dict)

    async def run(self, name: str) -> None:
        """Probe it with the settings in use, and keep the result; raises `ConfigError` for an unknown channel."""
        spec = self.spec(name)
        try:
            who = await probe(spec)
            result = f"connected as {who}" if who else "the settings are valid; this platform can't be asked"
        except (SupaclawError, TimeoutError) as error:
            result = f"failed: {str(error) or 'no answer'}"
        self.results[name] = f"{self.clock.now():%H:%M} UTC: {result}"

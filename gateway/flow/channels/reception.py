"""Reception: one stretch of receiving through an open channel, with its ear on whether anybody is there."""

import asyncio
from collections.abc import Callable, Sequence

from gateway.domain.channels.channel import Accept, Channel
from gateway.domain.conversation.inbound import Inbound
from gateway.domain.errors import SupaclawError


class Silent(SupaclawError):
    """The reception was broken off: nothing was heard for too long."""


class Reception:
    """Receives until cancelled or broken off. Until something is heard, a silence may last `patience` times longer."""

    def __init__(self, channel: Channel, accept: Accept, patience: int, monotonic: Callable[[], float]) -> None:
        self._channel = channel
        self._accept = accept
        self._patience = patience
        self._monotonic = monotonic
        self._began = monotonic()
        self._brought_at: float | None = None
        self._accepting = 0
        self._silent_for = 0.0
        self._limit: asyncio.Timeout | None = None

    async def run(self) -> None:
        """Raises `Silent` when broken off, and whatever the channel raises."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._limit = limit
                await self._channel.receive(self._take)
        except TimeoutError:
            if not limit.expired():
                raise
            raise Silent(f"nothing heard for {self._silent_for:.0f} s") from None
        finally:
            self._limit = None

    def break_off(self) -> None:
        """End the reception, if it is running."""
        if self._limit is not None:
            self._silent_for = self.silence
            self._limit.reschedule(0.0)

    @property
    def heard_at(self) -> float | None:
        """When something arrived or the platform answered, in this reception."""
        told = self._channel.heard_at
        times = [at for at in (told, self._brought_at) if at is not None and at >= self._began]
        return max(times, default=None)

    @property
    def silence(self) -> float:
        """Seconds since something was heard; none pass while what arrived is being accepted."""
        if self._accepting:
            return 0.0
        heard_at = self.heard_at
        return max(0.0, self._monotonic() - (self._began if heard_at is None else heard_at))

    @property
    def hears(self) -> bool:
        """Whether it is running and has heard something."""
        return self._limit is not None and self.heard_at is not None

    @property
    def overdue(self) -> bool:
        """Whether the silence is longer than a healthy connection's can be."""
        longest = self._channel.capabilities.silence
        if self._limit is None or longest is None:
            return False
        return self.silence > (longest if self.heard_at is not None else longest * self._patience)

    async def _take(self, batch: Sequence[Inbound]) -> None:
        self._accepting += 1
        try:
            await self._accept(batch)
        finally:
            self._accepting -= 1
            self._brought_at = self._monotonic()

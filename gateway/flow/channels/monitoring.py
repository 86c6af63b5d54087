"""Monitoring of channels: a reception that falls silent, and what the owner is told of a channel that stops working."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from gateway.domain.channels.channel import Accept, Channel
from gateway.domain.conversation.inbound import Inbound
from gateway.domain.errors import SupaclawError
from gateway.logs.errors import logged

OPEN = "open"
"""The state of a channel whose platform answered well the last time it was asked."""
REFUSED = "refused: "
"""How the state of a channel begins that works again only once its owner has done something."""
REFUSED_SECONDS, AWAY_SECONDS = 20.0, 300.0
"""How long a refusal, or anything else, lasts before it is told: networks are away for a moment every day."""
STEADY_SECONDS = 60.0
"""A channel works again after being open for that long: two programs that fight over a bot take turns."""

log = structlog.get_logger(__name__)

TellOwner = Callable[[str], Awaitable[None]]


@dataclass(slots=True)
class ChannelReports:
    """Compares states over time; what is reported stays reported until the channel has worked for a while."""

    tell_owner: TellOwner
    monotonic: Callable[[], float]
    _reported: set[str] = field(default_factory=set)
    _since: dict[str, tuple[bool, float]] = field(default_factory=dict)
    """Whether each channel works, and since when."""
    _worked: set[str] = field(default_factory=set)

    async def look(self, states: Mapping[str, str]) -> None:
        """Report what has changed for long enough; forget channels that are gone."""
        self._reported &= states.keys()
        self._worked &= states.keys()
        self._since = {name: since for name, since in self._since.items() if name in states}
        for name, state in states.items():
            works, now = state == OPEN, self.monotonic()
            if self._since.get(name, (None, now))[0] is not works:
                self._since[name] = works, now
            lasted = now - self._since[name][1]
            if works:
                self._worked.add(name)
                if name in self._reported and lasted >= STEADY_SECONDS:
                    self._reported.discard(name)
                    await self._tell(f"{name} works again.")
            elif self._is_due(name, state, lasted):
                await self.stopped(name, state)

    async def stopped(self, name: str, state: str) -> None:
        """Report it, unless that was done."""
        if name not in self._reported:
            self._reported.add(name)
            await self._tell(f"{name} has stopped working; {state}")

    def _is_due(self, name: str, state: str, lasted: float) -> bool:
        """Also whether it should work at all: one that waits for its first login need not."""
        if state.startswith(REFUSED):
            return lasted >= REFUSED_SECONDS
        return lasted >= AWAY_SECONDS and (name in self._worked or state.startswith("unreachable"))

    async def _tell(self, text: str) -> None:
        with logged(log, "channel.owner_not_told", text=text):  # the log has it; the other channels go on
            await self.tell_owner(text)


class ReceptionSilent(SupaclawError):
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
            raise ReceptionSilent(f"nothing heard for {self._silent_for:.0f} s") from None
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
        return max([at for at in (told, self._brought_at) if at is not None and at >= self._began], default=None)

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

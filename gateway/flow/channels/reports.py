"""Tells the owner once when a channel stops working, and once when it works again."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import structlog

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
        try:
            await self.tell_owner(text)
        except Exception:  # the log has it; the other channels go on
            log.exception("channel.owner_not_told", text=text)

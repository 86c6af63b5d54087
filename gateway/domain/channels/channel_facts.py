"""What a channel remembers: short facts by name, kept where every machine that may open the channel finds them."""

from collections.abc import Mapping
from typing import Protocol


class ChannelFacts(Protocol):
    """The facts of one channel. Only whoever has the channel open writes them."""

    async def load(self) -> Mapping[str, str]:
        """All of them, those that were saved longest ago first; raises `TryAgainLater`."""

    async def save(self, changes: Mapping[str, str | None]) -> None:
        """Store these, all or none; None removes one. Raises `TryAgainLater`."""


class NoFacts:
    """Of a channel that is never opened, only probed."""

    async def load(self) -> Mapping[str, str]:
        """None."""
        return {}

    async def save(self, changes: Mapping[str, str | None]) -> None:
        """Forget them."""

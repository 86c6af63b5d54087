"""Time as a dependency, so that tests control it."""

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """A source of time."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start, never going back."""

    async def sleep(self, seconds: float) -> None:
        """Sleep for that long."""

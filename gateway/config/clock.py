"""The system clock."""

import asyncio
from datetime import UTC, datetime
from time import monotonic


class SystemClock:
    """Implements `Clock`."""

    def now(self) -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for that long."""
        await asyncio.sleep(seconds)

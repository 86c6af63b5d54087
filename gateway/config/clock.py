"""The system clock."""

import asyncio
import time
from datetime import UTC, datetime


class SystemClock:
    """Implements `Clock`."""

    def now(self) -> datetime:
        """The current time in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since an arbitrary start."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Sleep for that long."""
        await asyncio.sleep(seconds)


def always() -> float:
    """Seconds, those asleep included. Where no clock counts them, the wall clock has to do."""
    boottime = getattr(time, "CLOCK_BOOTTIME", None)
    return time.time() if boottime is None else time.clock_gettime(boottime)

"""A wake-up call for a polling loop: it waits until called, or for the poll interval."""

import asyncio
from contextlib import suppress


class Wakeup:
    """Call `clear` before reading the queue, so that a call during the read is not lost."""

    def __init__(self) -> None:
        self._called = asyncio.Event()

    def set(self) -> None:
        """Wake the loop; never blocks."""
        self._called.set()

    def clear(self) -> None:
        """Forget earlier calls."""
        self._called.clear()

    @property
    def called(self) -> bool:
        """Whether a call came since `clear`."""
        return self._called.is_set()

    async def wait(self, seconds: float) -> None:
        """Return when called, or after `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._called.wait()

"""The rest between two looks at a queue: until somebody calls, or for so long at most."""

import asyncio
from contextlib import suppress


class Wakeup:
    """Call `clear` before looking, so that what comes while looking is not slept through."""

    def __init__(self) -> None:
        self._called = asyncio.Event()

    def set(self) -> None:
        """Never blocks."""
        self._called.set()

    def clear(self) -> None:
        """From here on a call counts."""
        self._called.clear()

    @property
    def called(self) -> bool:
        """Whether a call has come since."""
        return self._called.is_set()

    async def wait(self, seconds: float) -> None:
        """Returns when called, or after so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._called.wait()

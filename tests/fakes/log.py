"""A log that keeps what it is told."""

import asyncio

Facts = dict[str, object]


class Log:
    """`events` are (level, event, facts), in order."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, Facts]] = []
        self._changed = asyncio.Event()

    def named(self, event: str) -> list[Facts]:
        """The facts of every `event`."""
        return [facts for _, name, facts in self.events if name == event]

    async def heard(self, event: str) -> Facts:
        """Wait for the first `event`; its facts."""
        async with asyncio.timeout(10):
            while not self.named(event):
                await self._changed.wait()
        return self.named(event)[0]

    def info(self, event: str, /, **facts: object) -> None:
        self._keep("info", event, facts)

    def warning(self, event: str, /, **facts: object) -> None:
        self._keep("warning", event, facts)

    def error(self, event: str, /, **facts: object) -> None:
        self._keep("error", event, facts)

    def exception(self, event: str, /, **facts: object) -> None:
        self._keep("exception", event, facts)

    def _keep(self, level: str, event: str, facts: Facts) -> None:
        self.events.append((level, event, facts))
        self._changed.set()
        self._changed = asyncio.Event()

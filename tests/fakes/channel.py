"""A messenger in memory: what it was asked to show, and the faults it was told to have."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.domain.channel import Accept, Capabilities, Outgoing
from gateway.domain.inbound import Address


@dataclass
class FakeChannel:
    """`faults` are raised by the next sends, one each; `shown` is what the people saw, in order."""

    name: str = "fake"
    capabilities: Capabilities = field(default_factory=lambda: Capabilities(max_text=4096, drafts=True, typing=True))
    shown: list[Outgoing] = field(default_factory=list)
    drafts: list[str] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    asked: int = 0
    gate: asyncio.Event | None = None
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def open(self) -> None: ...

    async def receive(self, accept: Accept) -> None:
        await asyncio.Event().wait()

    async def send(self, message: Outgoing) -> str:
        self.asked += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.faults:
            raise self.faults.pop(0)
        async with self.changed:
            self.shown.append(message)
            self.changed.notify_all()
        return f"p{len(self.shown)}"

    async def typing(self, address: Address) -> None: ...

    async def draft(self, address: Address, draft: int, text: str) -> None:
        self.drafts.append(text)

    async def close(self) -> None: ...

    async def until(self, seen: Callable[[list[str]], bool], seconds: float = 10.0) -> list[str]:
        """Wait until what was shown satisfies `seen`."""
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(lambda: seen(self.texts))
        return self.texts

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.shown]

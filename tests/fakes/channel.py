"""A messenger in memory: what it was asked to show, and the faults it was told to have."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from gateway.domain.channels.channel import Accept, Capabilities, Drafts, FetchFailed, Outgoing
from gateway.domain.conversation.inbound import Address, Attachment


@dataclass
class FakeChannel:
    """`faults` are raised by the next sends, one each; `shown` is what the people saw, in order.

    A gate holds the sends to its chat until it is set.
    """

    name: str = "fake"
    capabilities: Capabilities = field(
        default_factory=lambda: Capabilities(max_text=4096, drafts=Drafts.PRIVATE, typing=True)
    )
    shown: list[Outgoing] = field(default_factory=list)
    drafts: list[str] = field(default_factory=list)
    drafts_fail: bool = False
    faults: list[Exception] = field(default_factory=list)
    asked: int = 0
    heard_at: float | None = None
    trouble: str = ""
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    typed: list[Address] = field(default_factory=list)
    reacted: list[tuple[Address, str, bool]] = field(default_factory=list)
    taken: list[bytes] = field(default_factory=list)
    """The files that were shown, as they were when they were sent."""
    files: dict[str, bytes | Exception] = field(default_factory=dict)
    """What `fetch` hands out, by `ref`; an error is raised instead."""
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def open(self) -> None: ...

    async def receive(self, accept: Accept) -> None:
        await asyncio.Event().wait()

    async def send(self, message: Outgoing) -> str:
        self.asked += 1
        async with self.changed:
            self.changed.notify_all()
        if message.address.chat in self.gates:
            await self.gates[message.address.chat].wait()
        if self.faults:
            raise self.faults.pop(0)
        if message.file is not None:
            self.taken.append(await asyncio.to_thread(Path(message.file.path).read_bytes))
        async with self.changed:
            self.shown.append(message)
            self.changed.notify_all()
        return f"p{len(self.shown)}"

    async def typing(self, address: Address) -> None:
        self.typed.append(address)

    async def draft(self, address: Address, draft: int, text: str) -> bool:
        self.drafts.append(text)
        return not self.drafts_fail

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        self.reacted.append((address, platform_id, seen))

    async def fetch(self, attachment: Attachment) -> AsyncIterator[bytes]:
        found = self.files.get(attachment.ref, FetchFailed("no such file"))
        if isinstance(found, Exception):
            raise found
        for start in range(0, len(found), 1000):
            yield found[start : start + 1000]

    async def close(self) -> None: ...

    async def until(self, seen: Callable[[list[str]], bool], seconds: float = 60.0) -> list[str]:
        """Wait until what was shown satisfies `seen`."""
        async with asyncio.timeout(seconds), self.changed:
            await self.changed.wait_for(lambda: seen(self.texts))
        return self.texts

    async def until_asked(self, times: int) -> None:
        """Wait until it was asked to send so many messages, whatever became of them."""
        async with asyncio.timeout(10), self.changed:
            await self.changed.wait_for(lambda: self.asked >= times)

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.shown]

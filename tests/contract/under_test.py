"""What the channel suite needs of a messenger: the channel, and a hand on the platform behind it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from gateway.domain.channels.channel import Channel, Outgoing
from gateway.domain.conversation.inbound import Address, Inbound
from gateway.domain.errors import DatabaseDown


class ChannelUnderTest(Protocol):
    """An open channel on a fake platform; the methods are what people and networks do there."""

    channel: Channel

    def says(self, text: str, *, chat: int = 77, sender: int = 77, bot: bool = False) -> None:
        """Someone writes in a private chat."""

    def says_in_group(self, text: str, *, to_us: bool) -> None:
        """Someone writes in a group, to the agent or to the others."""

    def sends_file(self, data: bytes, name: str, mime: str, caption: str = "") -> None:
        """Someone sends a document in the private chat."""

    def loses_files(self) -> None:
        """The platform hands out none of its files any more."""

    def presses(self, value: str) -> None:
        """Someone presses the button with this value, under the newest message of the agent."""

    async def buttons(self, count: int) -> Sequence[str]:
        """Wait until people see so many buttons; their labels."""

    async def files(self, count: int) -> Sequence[tuple[str, bytes]]:
        """Wait until people see so many files of the agent; their names, "" where none is shown, and bytes."""

    def edits(self, text: str) -> None:
        """The writer changes the newest message."""

    def sends_garbage(self) -> None:
        """The platform delivers something no SDK can read."""

    def unacknowledged(self) -> int:
        """How many things the platform would deliver again."""

    async def all_acknowledged(self) -> None:
        """Wait until the platform would deliver nothing again."""

    async def shown(self, count: int) -> Sequence[str]:
        """Wait until people see `count` messages of the agent; their texts."""

    def refuses_next_send(self) -> None:
        """The person has blocked the agent."""

    def delays_next_send(self, seconds: int) -> None:
        """The platform asks to wait."""

    def loses_next_answer(self) -> None:
        """The platform shows the next message, and the connection dies before it can say so."""

    async def goes_down(self) -> None:
        """Nothing listens any longer."""

    async def comes_back(self) -> None:
        """Everything is as before."""

    def nowhere(self) -> Address:
        """The address of a private chat."""


class Gateway:
    """Stands for what is behind `accept`: it keeps what it is given, or fails while it is `down`."""

    def __init__(self) -> None:
        self.attempts: list[Inbound] = []
        self.accepted: list[Inbound] = []
        self.open = asyncio.Event()
        self.open.set()
        self.failures_left = 0
        self._changed = asyncio.Condition()

    async def accept(self, batch: Sequence[Inbound]) -> None:
        async with self._changed:
            self.attempts.extend(batch)
            self._changed.notify_all()
        await self.open.wait()
        if self.failures_left:
            self.failures_left -= 1
            raise DatabaseDown("the database is down")
        async with self._changed:
            self.accepted.extend(batch)
            self._changed.notify_all()

    async def attempted(self, count: int) -> list[Inbound]:
        """Wait until that many were handed over, accepted or not."""
        return await self._wait(self.attempts, count)

    async def received(self, count: int) -> list[Inbound]:
        """Wait until that many were accepted."""
        return await self._wait(self.accepted, count)

    async def _wait(self, kept: list[Inbound], count: int) -> list[Inbound]:
        async with asyncio.timeout(10), self._changed:
            await self._changed.wait_for(lambda: len(kept) >= count)
        return list(kept)


@asynccontextmanager
async def receiving(platform: ChannelUnderTest, gateway: Gateway) -> AsyncIterator[None]:
    task = asyncio.create_task(platform.channel.receive(gateway.accept))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def answer(platform: ChannelUnderTest, text: str) -> Outgoing:
    return Outgoing(platform.nowhere(), text, key="k")

"""WhatsApp under the channel suite."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from channels.whatsapp.channel import WhatsApp
from channels.whatsapp.pairing import LinkTimeouts
from channels.whatsapp.store import Store
from gateway.domain.channels.channel import Channel
from gateway.domain.conversation.inbound import Address
from tests.contract.under_test import ChannelUnderTest, Gateway
from tests.fakes.eventually import eventually
from tests.fakes.log import Log
from tests.fakes.whatsapp import FakeWhatsApp

FRIENDS = "12036304"


async def within_reach() -> None:
    """The network is there."""


QUICK = LinkTimeouts(look=0.01, stop=0.05, pause=lambda _: asyncio.sleep(0.01), reach=within_reach)


def whatsapp_on(folder: Path, log: Log, timeouts: LinkTimeouts = QUICK) -> WhatsApp:
    """The channel with little patience."""
    return WhatsApp(store=Store(folder), log=log, timeouts=timeouts)


@asynccontextmanager
async def opened(folder: Path, log: Log | None = None, timeouts: LinkTimeouts = QUICK) -> AsyncIterator[WhatsApp]:
    channel = whatsapp_on(folder, log or Log(), timeouts)
    await channel.open()
    yield channel
    await channel.close()


@asynccontextmanager
async def linked(folder: Path, log: Log | None = None, timeouts: LinkTimeouts = QUICK) -> AsyncIterator[WhatsApp]:
    """Somebody has logged in."""
    async with opened(folder, log, timeouts) as channel:
        await eventually(lambda: channel.login().state == "connected")
        yield channel


@asynccontextmanager
async def receiving(channel: WhatsApp, gateway: Gateway) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(channel.receive(gateway.accept))
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def whatsapp() -> AsyncIterator[ChannelUnderTest]:
    with TemporaryDirectory() as folder, FakeWhatsApp() as platform:
        async with linked(Path(folder)) as channel:
            yield WhatsAppUnderTest(platform, channel, Path(folder) / "spool")


class WhatsAppUnderTest:
    def __init__(self, platform: FakeWhatsApp, channel: Channel, spool: Path) -> None:
        self.channel = channel
        self._platform = platform
        self._spool = spool

    def says(self, text: str, *, chat: int = 77, sender: int = 77, bot: bool = False) -> None:
        self._newest = self._platform.say(text, str(chat), sender=str(sender), sender_server="bot" if bot else "")

    def says_in_group(self, text: str, *, to_us: bool) -> None:
        content = self._platform.mention(f"@{self._platform.number} {text}", self._platform.number) if to_us else None
        self._platform.say(text, FRIENDS, sender="77", group=True, content=content)

    def sends_file(self, data: bytes, name: str, mime: str, caption: str = "") -> None:
        self._platform.say(content=self._platform.document(data, name, mime, caption))

    def loses_files(self) -> None:
        self._platform.files.clear()

    def presses(self, value: str) -> None:
        raise NotImplementedError("WhatsApp has no buttons")

    async def buttons(self, count: int) -> Sequence[str]:
        raise NotImplementedError("WhatsApp has no buttons")

    async def files(self, count: int) -> Sequence[tuple[str, bytes]]:
        await eventually(lambda: len(self._files()) >= count)
        return self._files()

    def edits(self, text: str) -> None:
        self._platform.edit(self._newest, text)

    def sends_garbage(self) -> None:
        self._platform.garbage()

    def unacknowledged(self) -> int:
        """What the channel itself would deliver again: WhatsApp hears nothing of our part."""
        return len(list(self._spool.iterdir())) + len(self._platform.pending)

    async def all_acknowledged(self) -> None:
        await eventually(lambda: self._platform.quiet and not self.unacknowledged())

    async def shown(self, count: int) -> Sequence[str]:
        await eventually(lambda: len(self._platform.sent) >= count)
        return [sent.text for sent in self._platform.sent]

    def refuses_next_send(self) -> None:
        self._platform.fail("server returned error 403")

    def delays_next_send(self, seconds: int) -> None:
        self._platform.fail("server returned error 429")

    def loses_next_answer(self) -> None:
        self._platform.lose_answer()

    async def goes_down(self) -> None:
        self._platform.go_down()
        await eventually(lambda: self.channel.login().state != "connected")

    async def comes_back(self) -> None:
        self._platform.come_back()
        await eventually(lambda: self.channel.login().state == "connected")

    def nowhere(self) -> Address:
        return Address("whatsapp", self._platform.number, "77")

    def _files(self) -> list[tuple[str, bytes]]:
        """A picture has no name there."""
        shown = [(sent.message.documentMessage, sent.message.imageMessage) for sent in self._platform.sent]
        found = [(file.fileName, file.mediaKey or picture.mediaKey) for file, picture in shown]
        return [(name, self._platform.files[key]) for name, key in found if key]

"""Telegram under the channel suite."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from channels.telegram.channel import Telegram
from channels.telegram.reception import PollTimeouts
from gateway.domain.channels.channel import Channel
from gateway.domain.conversation.inbound import Address
from tests.contract.under_test import ChannelUnderTest
from tests.fakes.log import Log
from tests.fakes.telegram import FakeTelegram


def telegram_on(platform: FakeTelegram, log: Log, *, webhook_url: str | None = None, rich: bool = True) -> Telegram:
    """The channel with little patience."""
    return Telegram(
        token=platform.token,
        api_base=platform.url,
        webhook_url=webhook_url,
        webhook_secret="hook-secret",
        commands=[("new", "Start afresh")],
        log=log,
        rich=rich,
        timeouts=PollTimeouts(poll=5, stall=2),
        pause=lambda _: asyncio.sleep(0.01),
    )


@asynccontextmanager
async def telegram() -> AsyncIterator[ChannelUnderTest]:
    async with FakeTelegram() as platform:
        channel = telegram_on(platform, Log())
        await channel.open()
        yield TelegramUnderTest(platform, channel)
        await channel.close()


class TelegramUnderTest:
    def __init__(self, platform: FakeTelegram, channel: Channel) -> None:
        self.channel = channel
        self._platform = platform
        self._newest: dict[str, object] = {}

    def says(self, text: str, *, chat: int = 77, sender: int = 77, bot: bool = False) -> None:
        self._newest = self._platform.say(text, chat, sender=sender, bot=bot)

    def says_in_group(self, text: str, *, to_us: bool) -> None:
        self._platform.say(f"@{self._platform.username} {text}" if to_us else text, -5, sender=77, group=True)

    def sends_file(self, data: bytes, name: str, mime: str, caption: str = "") -> None:
        document = self._platform.keep(data) | {"file_name": name, "mime_type": mime}
        self._newest = self._platform.say(None, document=document, **({"caption": caption} if caption else {}))

    def loses_files(self) -> None:
        self._platform.lose_files()

    def presses(self, value: str) -> None:
        self._platform.press(self._platform.sent[-1], value)

    async def buttons(self, count: int) -> Sequence[str]:
        await self._platform.wait_for(lambda platform: len(_labels(platform)) >= count)
        return _labels(self._platform)

    async def files(self, count: int) -> Sequence[tuple[str, bytes]]:
        await self._platform.wait_for(lambda platform: len(_files(platform)) >= count)
        return _files(self._platform)

    def edits(self, text: str) -> None:
        self._platform.edit(self._newest, text)

    def sends_garbage(self) -> None:
        self._platform.push({"message": {"message_id": "x", "chat": []}})

    def unacknowledged(self) -> int:
        return len(self._platform.pending)

    async def all_acknowledged(self) -> None:
        await self._platform.wait_for(lambda platform: not platform.pending)

    async def shown(self, count: int) -> Sequence[str]:
        await self._platform.wait_for(lambda platform: len(platform.sent) >= count)
        return [sent.text for sent in self._platform.sent]

    def refuses_next_send(self) -> None:
        self._platform.block(77)

    def delays_next_send(self, seconds: int) -> None:
        self._platform.fault("sendMessage", 429, "Too Many Requests: retry after", retry_after=seconds)

    def loses_next_answer(self) -> None:
        self._platform.drop_response("sendMessage")

    async def goes_down(self) -> None:
        await self._platform.stop()

    async def comes_back(self) -> None:
        await self._platform.start()

    def nowhere(self) -> Address:
        return Address("telegram", str(self._platform.bot_id), "77")


def _labels(platform: FakeTelegram) -> Sequence[str]:
    return [label for keyboard in platform.keyboards.values() for label, _ in keyboard]


def _files(platform: FakeTelegram) -> Sequence[tuple[str, bytes]]:
    return [(sent.file.name, sent.file.data) for sent in platform.sent if sent.file is not None]

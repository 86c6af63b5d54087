"""Slack under the channel suite."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from channels.slack.channel import Slack
from channels.slack.client import Client
from gateway.domain.channels.channel import Channel
from gateway.domain.conversation.inbound import Address
from tests.contract.under_test import ChannelUnderTest
from tests.fakes.facts import FactsInFile
from tests.fakes.log import Log
from tests.fakes.slack import FakeSlack, Params, buttons


def slack_on(platform: FakeSlack, log: Log, data: Path, **settings: Any) -> Slack:
    """The channel with little patience."""
    given = {
        "ping_interval": 0.2,
        "commands": frozenset({"new", "stop", "help"}),
        "pause": lambda _: asyncio.sleep(0.01),
        "facts": FactsInFile(data / "facts.json"),
    }
    client = Client(platform.bot_token, platform.app_token, platform.url)
    return Slack(client, log=log, **(given | settings))


@asynccontextmanager
async def slack() -> AsyncIterator[ChannelUnderTest]:
    with TemporaryDirectory() as data:
        async with FakeSlack() as platform:
            channel = slack_on(platform, Log(), Path(data))
            await channel.open()
            yield SlackUnderTest(platform, channel)
            await channel.close()


class SlackUnderTest:
    def __init__(self, platform: FakeSlack, channel: Channel) -> None:
        self.channel = channel
        self._platform = platform
        self._newest: Params = {}

    def says(self, text: str, *, chat: int = 77, sender: int = 77, bot: bool = False) -> None:
        self._newest = self._platform.say(text, str(chat), sender=str(sender), bot=bot)

    def says_in_group(self, text: str, *, to_us: bool) -> None:
        self._platform.say(f"<@UBOT> {text}" if to_us else text, "C5", kind="channel")

    def sends_file(self, data: bytes, name: str, mime: str, caption: str = "") -> None:
        self._platform.say(caption, files=(self._platform.file(data, name, mime),))

    def loses_files(self) -> None:
        self._platform.content.clear()
        self._platform.files.clear()

    def presses(self, value: str) -> None:
        self._platform.press(value)

    async def buttons(self, count: int) -> Sequence[str]:
        def labels(platform: FakeSlack) -> list[str]:
            return [label for message in platform.sent for label in buttons(message)]

        await self._platform.wait_for(lambda platform: len(labels(platform)) >= count)
        return labels(self._platform)

    async def files(self, count: int) -> Sequence[tuple[str, bytes]]:
        def shown(platform: FakeSlack) -> list[tuple[str, bytes]]:
            files = (file for message in platform.sent for file in message.get("files", ()))
            return [(file["name"], platform.content[file["id"]]) for file in files]

        await self._platform.wait_for(lambda platform: len(shown(platform)) >= count)
        return shown(self._platform)

    def edits(self, text: str) -> None:
        self._platform.edit(self._newest, text)

    def sends_garbage(self) -> None:
        self._platform.push({"type": "message", "channel": {"id": 5}, "ts": ["x"], "user": None})

    def unacknowledged(self) -> int:
        return len(self._platform.pending)

    async def all_acknowledged(self) -> None:
        await self._platform.wait_for(lambda platform: not platform.pending)

    async def shown(self, count: int) -> Sequence[str]:
        await self._platform.wait_for(lambda platform: len(platform.sent) >= count)
        return self._platform.shown

    def refuses_next_send(self) -> None:
        self._platform.fault("chat.postMessage", "channel_not_found")

    def delays_next_send(self, seconds: int) -> None:
        self._platform.fault("chat.postMessage", "ratelimited", status=429, Retry_After=str(seconds))

    def loses_next_answer(self) -> None:
        self._platform.drop_response("chat.postMessage")

    async def goes_down(self) -> None:
        await self._platform.stop()

    async def comes_back(self) -> None:
        await self._platform.start()

    def nowhere(self) -> Address:
        return Address("slack", "T1", "77")

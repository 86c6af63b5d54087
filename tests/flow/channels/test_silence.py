"""A channel that went deaf, on the fake messenger and on Telegram's protocol over real sockets."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field

import pytest

from channels.telegram.channel import Telegram
from channels.telegram.reception import PollTimeouts
from gateway.domain.channels.channel import Channel
from gateway.domain.settings import ChannelSettings
from gateway.flow.channels.supervisor import ChannelSpec, ChannelSupervisor
from tests.contract.under_test import Gateway
from tests.fakes.eventually import eventually
from tests.fakes.log import Log
from tests.fakes.telegram import FakeTelegram
from tests.flow.path import MessagePath

STALL = 1000.0
SILENCE = 3 * (1 + STALL)


@dataclass
class Time:
    """The real one, set forward."""

    ahead: float = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


@dataclass
class Wire:
    """A connection to the platform that can go dead without anybody noticing."""

    platform: FakeTelegram
    dead: bool = False
    port: int = 0
    dials: int = 0
    _open: list[asyncio.StreamWriter] = field(default_factory=list)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Wire"]:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dials += 1
        there, back = await asyncio.open_connection("127.0.0.1", self.platform.port)
        self._open += [writer, back]
        alive = not self.dead
        await asyncio.gather(self._pump(reader, back, alive), self._pump(there, writer, alive))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, alive: bool) -> None:
        """A connection made on a dead wire stays dead, and so does one that the wire died under."""
        with suppress(ConnectionError, asyncio.CancelledError):
            while data := await source.read(65_536):
                if alive := alive and not self.dead:
                    sink.write(data)
            sink.close()


@dataclass
class Watched:
    gateway: Gateway
    channel_manager: ChannelSupervisor
    clock: Time

    def state(self) -> str:
        return self.channel_manager.states["telegram"]

    async def until(self, state: str) -> None:
        await eventually(lambda: self.state() == state)


@asynccontextmanager
async def watched(path: MessagePath, channel: Channel) -> AsyncIterator[Watched]:
    clock, gateway = Time(), Gateway()
    channel_manager = ChannelSupervisor(
        path.outbound, path.notices.tell_owner, path.channel_leases, path.signals, monotonic=clock.monotonic
    )
    async with asyncio.TaskGroup() as group:
        await channel_manager.apply(
            {"telegram": ChannelSpec(ChannelSettings(), lambda: channel)}, gateway.accept, group
        )
        try:
            yield Watched(gateway, channel_manager, clock)
        finally:
            await channel_manager.shut()


def telegram(platform: FakeTelegram, api_base: str, *, stall: float = STALL) -> Telegram:
    return Telegram(
        token=platform.token,
        api_base=api_base,
        webhook_url=None,
        webhook_secret="secret",
        commands=[("new", "Start afresh")],
        log=Log(),
        timeouts=PollTimeouts(poll=1, stall=stall),
        pause=lambda _: asyncio.sleep(0.01),
    )


@pytest.fixture
async def platform() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as platform:
        yield platform


async def test_a_poll_that_hangs_for_ever_is_replaced_and_what_waited_arrives(
    path: MessagePath, platform: FakeTelegram
) -> None:
    platform.hang("getUpdates")
    platform.say("hello")
    async with watched(path, telegram(platform, platform.url)) as telegrams:
        await telegrams.until("connecting")
        telegrams.clock.ahead = SILENCE - 10
        await telegrams.channel_manager.reopen_silent()
        assert telegrams.state() == "connecting"
        telegrams.clock.ahead = SILENCE + 10
        await telegrams.channel_manager.reopen_silent()
        await telegrams.until("deaf: nothing heard since it was opened again")
        platform.release()
        await telegrams.gateway.received(1)
        assert telegrams.state() == "open"


async def test_a_connection_that_died_without_a_word_is_dialled_anew(path: MessagePath, platform: FakeTelegram) -> None:
    async with AsyncExitStack() as stack:
        wire = await stack.enter_async_context(Wire(platform).listening())
        there = f"http://127.0.0.1:{wire.port}"
        telegrams = await stack.enter_async_context(watched(path, telegram(platform, there)))
        platform.say("one")
        await platform.wait_for(lambda tg: tg.acknowledged > 0)
        wire.dead, dials = True, wire.dials
        platform.say("two")
        telegrams.clock.ahead = 2 * SILENCE
        await telegrams.channel_manager.reopen_silent()
        await eventually(lambda: wire.dials > dials)
        wire.dead = False
        telegrams.clock.ahead += 1.9 * SILENCE
        assert telegrams.channel_manager.silent() == {}, "the timer began anew, and is more patient in an outage"
        telegrams.clock.ahead += SILENCE
        await telegrams.channel_manager.reopen_silent()
        assert [inbound.text for inbound in await telegrams.gateway.received(2)] == ["one", "two"]


async def test_a_healthy_channel_that_nobody_writes_to_is_left_alone(path: MessagePath, platform: FakeTelegram) -> None:
    channel = telegram(platform, platform.url, stall=20)
    async with watched(path, channel) as telegrams:
        await platform.wait_for(lambda tg: bool(tg.commands))
        for _ in range(2):
            telegrams.clock.ahead += 30
            polls = platform.polls
            await platform.wait_for(lambda tg, polls=polls: tg.polls > polls + 1)
            await telegrams.channel_manager.reopen_silent()
            assert telegrams.state() == "open"
        assert [method for method, _ in platform.calls].count("setmycommands") == 1


async def test_a_platform_that_asked_to_be_left_alone_is_left_alone(path: MessagePath, platform: FakeTelegram) -> None:
    channel = telegram(platform, platform.url)
    channel._recovery.pause = asyncio.sleep
    platform.fault("getUpdates", 429, "Too Many Requests", retry_after=100_000)
    async with watched(path, channel) as telegrams:
        await eventually(lambda: channel.heard_at is not None)
        telegrams.clock.ahead = 3_500  # it is asked again after an hour
        assert telegrams.channel_manager.silent() == {}
        assert telegrams.channel_manager.vitals["telegram"].heard_ago == 0


async def test_a_webhook_is_never_silent(path: MessagePath, platform: FakeTelegram) -> None:
    channel = telegram(platform, platform.url)
    pushed = Telegram(
        token=platform.token,
        api_base=platform.url,
        webhook_url="http://127.0.0.1:9/hook",
        webhook_secret="s",
        commands=[("new", "Start afresh")],
        log=Log(),
    )
    assert (channel.capabilities.silence, pushed.capabilities.silence, pushed.heard_at) == (SILENCE, None, None)

"""What a chat hears while the database is away."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.config.machine import SystemClock
from gateway.domain.channels.channel import SendFailed
from gateway.domain.conversation.inbound import Address
from gateway.flow.inbound.spool import SAVED_NOTICE, Outages
from gateway.flow.outbound.sender import Outbound
from tests.fakes.channel import FakeChannel
from tests.fakes.engine import engine_on
from tests.fakes.eventually import eventually
from tests.flow.outage import AwayAtTimes

HERE, THERE, PAGE = Address("fake", "bot", "1"), Address("fake", "bot", "2"), Address("web", "owner", "main")


class Hurried(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


@pytest.fixture
async def away(dsn: str) -> AsyncIterator[AwayAtTimes]:
    async with await AwayAtTimes.connect(dsn) as database:
        yield database


@pytest.fixture
async def outages(away: AwayAtTimes, channel: FakeChannel) -> AsyncIterator[Outages]:
    outbound = Outbound(engine_on(away), Path, str)
    await outbound.adopt("fake", channel)
    away.away = True

    async def works() -> bool:
        return not away.away

    outages = Outages(works, outbound, Hurried())
    running = asyncio.create_task(outages.run())
    yield outages
    running.cancel()
    await asyncio.wait([running])


async def test_each_chat_is_told_once_until_it_is_over(outages: Outages, channel: FakeChannel) -> None:
    for at in (HERE, HERE, PAGE, THERE):
        outages.note(at, private=True)
    await channel.until(lambda texts: len(texts) == 2)
    outages.note(HERE, private=True)
    outages.note(THERE, private=True)
    outages.over()
    outages.note(THERE, private=False)
    await channel.until(lambda texts: len(texts) == 3)
    assert [message.address for message in channel.shown] == [HERE, THERE, THERE]
    assert set(channel.texts) == {SAVED_NOTICE}


async def test_what_is_over_in_a_moment_is_not_worth_a_word(outages: Outages, channel: FakeChannel) -> None:
    outages.note(HERE, private=True)
    outages.over()
    outages.note(THERE, private=True)
    await channel.until(lambda texts: len(texts) == 1)
    assert [message.address for message in channel.shown] == [THERE]


@pytest.mark.parametrize("fault", [SendFailed("blocked"), RuntimeError("a defect of a plug-in")])
async def test_a_platform_that_refuses_is_left_alone(outages: Outages, channel: FakeChannel, fault: Exception) -> None:
    channel.faults = [fault]
    outages.note(HERE, private=True)
    outages.note(THERE, private=True)
    await channel.until(lambda texts: len(texts) == 1)
    outages.note(HERE, private=True)
    outages.note(Address("fake", "bot", "3"), private=True)
    await channel.until(lambda texts: len(texts) == 2)
    assert channel.asked == 3


async def test_a_database_that_answers_is_no_outage(outages: Outages, away: AwayAtTimes, channel: FakeChannel) -> None:
    away.away = False
    outages.note(HERE, private=True)
    await eventually(lambda: not outages._waiting)
    away.away = True
    outages.note(THERE, private=True)
    await channel.until(lambda texts: len(texts) == 1)
    assert [message.address for message in channel.shown] == [THERE]

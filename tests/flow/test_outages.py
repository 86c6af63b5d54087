"""What a chat hears while the database is away."""

import pytest

from gateway.config.failpoints import Failpoints
from gateway.domain.channel import SendFailed
from gateway.domain.inbound import Address
from gateway.flow.outages import KEPT, Outages
from gateway.flow.outbound import Outbound
from gateway.store.pool import Database
from tests.fakes.channel import FakeChannel

HERE, THERE = Address("fake", "bot", "1"), Address("fake", "bot", "2")


@pytest.fixture
def channel() -> FakeChannel:
    return FakeChannel()


@pytest.fixture
async def outages(database: Database, channel: FakeChannel) -> Outages:
    outbound = Outbound(database, Failpoints(None))
    await outbound.adopt("fake", channel)
    return Outages(outbound)


async def test_each_chat_is_told_once_until_it_is_over(outages: Outages, channel: FakeChannel) -> None:
    for at in (HERE, HERE, THERE):
        await outages.tell(at, private=True)
    assert [message.address for message in channel.shown] == [HERE, THERE]
    assert set(channel.texts) == {KEPT}
    outages.over()
    await outages.tell(HERE, private=True)
    assert len(channel.shown) == 3


async def test_a_platform_that_refuses_is_left_alone(outages: Outages, channel: FakeChannel) -> None:
    channel.faults = [SendFailed("blocked")]
    await outages.tell(HERE, private=True)
    await outages.tell(HERE, private=True)
    assert (channel.asked, channel.shown) == (1, [])


async def test_where_people_read_the_transcript_nothing_is_sent(outages: Outages, channel: FakeChannel) -> None:
    await outages.tell(Address("web", "owner", "main"), private=True)
    assert channel.asked == 0

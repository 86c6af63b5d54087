"""What people write arrives: in order, whole, and as often as it takes."""

import asyncio
from contextlib import suppress

import pytest

from tests.contract.under_test import ChannelUnderTest, Gateway, receiving


async def test_messages_arrive_in_the_order_they_were_written(platform: ChannelUnderTest, gateway: Gateway) -> None:
    texts = [f"number {number}" for number in range(30)]
    for text in texts:
        platform.says(text)
    assert [inbound.text for inbound in await gateway.received(30)] == texts


async def test_a_message_tells_where_when_and_from_whom(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("hello", chat=77, sender=77)
    (inbound,) = await gateway.received(1)
    assert inbound.address == platform.nowhere()
    assert (inbound.sender.id, inbound.sender.is_bot) == ("77", False)
    assert inbound.private
    assert inbound.addressed
    assert inbound.edits is None
    assert inbound.sent_at.utcoffset() is not None


async def test_someone_nobody_knows_is_told_apart_by_id(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("let me in", chat=666, sender=666)
    (inbound,) = await gateway.received(1)
    assert (inbound.address.chat, inbound.sender.id) == ("666", "666")


async def test_nothing_is_acknowledged_before_it_is_accepted(platform: ChannelUnderTest, gateway: Gateway) -> None:
    gateway.open.clear()
    platform.says("keep me")
    await gateway.attempted(1)
    assert platform.unacknowledged() == 1
    gateway.open.set()
    await gateway.received(1)
    await platform.all_acknowledged()


async def test_what_was_not_accepted_comes_again_as_the_same_message(
    platform: ChannelUnderTest, gateway: Gateway
) -> None:
    gateway.failures_left = 2
    platform.says("keep me")
    await gateway.received(1)
    assert len(gateway.attempts) == 3
    assert len({(inbound.address, inbound.platform_id) for inbound in gateway.attempts}) == 1


async def test_one_message_delivered_fifty_times_is_the_same_each_time(
    platform: ChannelUnderTest, gateway: Gateway
) -> None:
    gateway.failures_left = 49
    platform.says("keep me")
    await gateway.received(1)
    assert len(gateway.attempts) == 50
    assert len({(inbound.address, inbound.platform_id) for inbound in gateway.attempts}) == 1
    await platform.all_acknowledged()


async def test_different_messages_have_different_ids(platform: ChannelUnderTest, gateway: Gateway) -> None:
    for _ in range(3):
        platform.says("again")
    assert len({inbound.platform_id for inbound in await gateway.received(3)}) == 3


async def test_an_edit_names_the_message_it_changes(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("helo")
    platform.edits("hello")
    original, edit = await gateway.received(2)
    assert edit.edits == original.platform_id != edit.platform_id
    assert edit.text == "hello"


async def test_bots_are_flagged(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("beep", sender=5, bot=True)
    (inbound,) = await gateway.received(1)
    assert inbound.sender.is_bot


@pytest.mark.parametrize("to_us", [True, False])
async def test_group_talk_is_ours_only_when_it_is_meant_for_us(
    platform: ChannelUnderTest, gateway: Gateway, to_us: bool
) -> None:
    platform.says_in_group("what do you think?", to_us=to_us)
    (inbound,) = await gateway.received(1)
    assert not inbound.private
    assert inbound.addressed is to_us


async def test_a_message_of_a_megabyte_arrives_whole(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("x" * 1_000_000)
    (inbound,) = await gateway.received(1)
    assert len(inbound.text) == 1_000_000


@pytest.mark.parametrize(
    "text",
    ["a\x00b", "half a pair \ud83d", "\u202ertl \u200b\ufeff", "@somebody *b* _i_ https://x.test " * 3000, "\n" * 5000],
    ids=["NUL", "surrogate", "invisible", "entities", "lines"],
)
async def test_an_odd_text_holds_up_nothing(platform: ChannelUnderTest, gateway: Gateway, text: str) -> None:
    """Whether it arrives is for the platform to say: some cannot carry it at all."""
    platform.says("before")
    with suppress(UnicodeError):
        platform.says(text)
    platform.says("after")
    async with asyncio.timeout(10):
        while [inbound.text for inbound in gateway.accepted][-1:] != ["after"]:
            await gateway.received(len(gateway.accepted) + 1)
    assert gateway.accepted[0].text == "before"
    await platform.all_acknowledged()


async def test_what_cannot_be_read_blocks_nothing(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("before")
    platform.sends_garbage()
    platform.says("after")
    assert [inbound.text for inbound in await gateway.received(2)] == ["before", "after"]
    await platform.all_acknowledged()


async def test_a_backlog_is_delivered_in_order(platform: ChannelUnderTest) -> None:
    for number in range(5):
        platform.says(str(number))
    gateway = Gateway()
    async with receiving(platform, gateway):
        assert [inbound.text for inbound in await gateway.received(5)] == ["0", "1", "2", "3", "4"]


async def test_the_channel_comes_back_after_the_platform_was_away(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("before")
    await gateway.received(1)
    await platform.all_acknowledged()
    await platform.goes_down()
    platform.says("meanwhile")
    await platform.comes_back()
    platform.says("after")
    assert [inbound.text for inbound in await gateway.received(3)] == ["before", "meanwhile", "after"]

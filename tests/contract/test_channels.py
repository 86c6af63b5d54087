"""Every messenger passes this suite; a new one adds its adapter to `CHANNELS`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest

from gateway.domain.channel import Outgoing, SendDelayed, SendFailed, SendUncertain
from gateway.domain.splitting import split, utf16_len
from tests.contract.telegram import telegram
from tests.contract.under_test import ChannelUnderTest, Gateway

CHANNELS = {"telegram": telegram}

HOSTILE = [
    "a < b && c > d",
    "<b>not <i>closed",
    "*one _two* three_ `four",
    "[text](javascript:alert(1)) ![x](y) <tg://x>",
    "# \n\n> \n\n| a |\n|---|\n",
    "*" * 3000,
    "```\nnever closed",
    "&lt; &#0; &nbsp; \\* 🙂",
    "***",
]


@pytest.fixture(params=list(CHANNELS.values()), ids=list(CHANNELS))
async def platform(request: pytest.FixtureRequest) -> AsyncIterator[ChannelUnderTest]:
    async with request.param() as under_test:
        yield under_test


@pytest.fixture
async def gateway(platform: ChannelUnderTest) -> AsyncIterator[Gateway]:
    gateway = Gateway()
    async with receiving(platform, gateway):
        yield gateway


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


async def test_an_answer_goes_where_the_message_came_from(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("hello")
    (inbound,) = await gateway.received(1)
    first = await platform.channel.send(Outgoing(inbound.address, "one", "1"))
    second = await platform.channel.send(Outgoing(inbound.address, "two", "2"))
    assert await platform.shown(2) == ["one", "two"]
    assert first != second


@pytest.mark.parametrize("text", HOSTILE)
async def test_whatever_a_model_writes_is_shown(platform: ChannelUnderTest, text: str) -> None:
    await platform.channel.send(answer(platform, text))
    assert len(await platform.shown(1)) == 1


async def test_the_parts_of_a_long_answer_are_short_enough(platform: ChannelUnderTest) -> None:
    text = "Some words, 🙂.\n" * 500 + "```py\n" + "print('<&>')\n" * 500 + "```\n" + "🙂" * 5000
    limit = platform.channel.capabilities.max_text
    parts = split(text, limit)
    for part in parts:
        await platform.channel.send(answer(platform, part))
    shown = await platform.shown(len(parts))
    assert all(utf16_len(part) <= limit for part in shown)
    assert sum(part.count("🙂") for part in shown) == 5500


async def test_a_refused_answer_has_failed(platform: ChannelUnderTest) -> None:
    platform.refuses_next_send()
    with pytest.raises(SendFailed, match=r"^[^\n]+$"):
        await platform.channel.send(answer(platform, "hello"))


async def test_an_answer_may_be_delayed_for_as_long_as_the_platform_says(platform: ChannelUnderTest) -> None:
    platform.delays_next_send(7)
    with pytest.raises(SendDelayed) as delayed:
        await platform.channel.send(answer(platform, "hello"))
    assert delayed.value.retry_after == 7
    await platform.channel.send(answer(platform, "hello"))
    assert await platform.shown(1) == ["hello"]


async def test_an_answer_whose_receipt_is_lost_is_uncertain_and_not_repeated(platform: ChannelUnderTest) -> None:
    platform.loses_next_answer()
    with pytest.raises(SendUncertain):
        await platform.channel.send(answer(platform, "once"))
    assert await platform.shown(1) == ["once"]


async def test_an_answer_that_never_left_is_only_delayed(platform: ChannelUnderTest) -> None:
    await platform.goes_down()
    with pytest.raises(SendDelayed):
        await platform.channel.send(answer(platform, "hello"))
    await platform.comes_back()
    await platform.channel.send(answer(platform, "hello"))
    assert await platform.shown(1) == ["hello"]


async def test_typing_and_drafts_never_raise(platform: ChannelUnderTest) -> None:
    await platform.goes_down()
    await platform.channel.typing(platform.nowhere())
    await platform.channel.draft(platform.nowhere(), 1, "so far")
    await platform.channel.typing(replace(platform.nowhere(), chat="0"))
    await platform.comes_back()
    await platform.channel.draft(platform.nowhere(), 1, "so far")
    assert await platform.shown(0) == []

"""What the agent says is shown: whatever it is, and once."""

from dataclasses import replace

import pytest

from gateway.domain.channels.channel import Button, Outgoing, SendDelayed, SendFailed, SendUncertain
from gateway.domain.conversation.inbound import Address, Inbound
from gateway.domain.text.splitting import split, utf16_len
from tests.contract.under_test import ChannelUnderTest, Gateway, answer

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
    "> " * 1000 + "deep",
    "- " * 1000 + "deep",
    "[a](" * 700,
    "| a | b |\n" * 150,
    "\u202eright to left \u200bzero \ufeffwidth \u2028lines",
    "<@U1> <!channel> @everyone #general :smile: /new",
    "e" + "\u0301" * 1000,
]


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
    assert delayed.value.retry_after >= 7
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


async def test_a_doubtful_answer_is_shown_once_where_it_can_be_repeated(platform: ChannelUnderTest) -> None:
    if not platform.channel.capabilities.idempotent_send:
        pytest.skip("a send that may have happened is not repeated there")
    platform.loses_next_answer()
    with pytest.raises(SendUncertain):
        await platform.channel.send(answer(platform, "once"))
    again = replace(answer(platform, "once"), again=True)
    assert await platform.channel.send(again)
    assert await platform.shown(1) == ["once"]


async def test_a_repeated_answer_that_never_arrived_is_shown(platform: ChannelUnderTest) -> None:
    await platform.goes_down()
    with pytest.raises(SendDelayed):
        await platform.channel.send(answer(platform, "once"))
    await platform.comes_back()
    await platform.channel.send(replace(answer(platform, "once"), again=True))
    assert await platform.shown(1) == ["once"]


async def test_an_answer_that_grew_in_a_draft_is_seen_once(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("hello")
    (inbound,) = await gateway.received(1)
    address = _drafted(platform, inbound)
    for text in ("O", "One", "One answer"):
        await platform.channel.draft(address, 7, text)
    await platform.channel.send(Outgoing(address, "One answer.", "k"))
    assert await platform.shown(1) == ["One answer."]


def _drafted(platform: ChannelUnderTest, inbound: Inbound) -> Address:
    capabilities, address = platform.channel.capabilities, inbound.address
    for each in (address, replace(address, thread=inbound.platform_id)):
        if capabilities.drafts_at(each, private=inbound.private):
            return each
    pytest.skip("there are no drafts there")


async def test_reactions_never_raise(platform: ChannelUnderTest, gateway: Gateway) -> None:
    platform.says("hello")
    (inbound,) = await gateway.received(1)
    for seen in (True, True, False, False):
        await platform.channel.react(inbound.address, inbound.platform_id, seen=seen)
    await platform.channel.react(inbound.address, "no such message", seen=True)
    await platform.goes_down()
    await platform.channel.react(inbound.address, inbound.platform_id, seen=True)
    await platform.comes_back()
    assert await platform.shown(0) == []


async def test_a_button_says_its_value_for_whoever_presses_it(platform: ChannelUnderTest, gateway: Gateway) -> None:
    if not platform.channel.capabilities.buttons:
        pytest.skip("there are no buttons there")
    choices = (Button("Yes, do it", "/yes A17"), Button("No", "/no " + "x" * 60))
    await platform.channel.send(replace(answer(platform, "Really?"), buttons=choices))
    assert await platform.buttons(2) == ["Yes, do it", "No"]
    assert await platform.shown(1) == ["Really?"]
    platform.presses("/yes A17")
    (pressed,) = await gateway.received(1)
    assert (pressed.text, pressed.address, pressed.sender.id) == ("/yes A17", platform.nowhere(), "77")
    assert (pressed.private, pressed.addressed, pressed.edits) == (True, True, None)
    await platform.all_acknowledged()


async def test_a_press_that_was_not_accepted_comes_again_as_the_same(
    platform: ChannelUnderTest, gateway: Gateway
) -> None:
    if not platform.channel.capabilities.buttons:
        pytest.skip("there are no buttons there")
    await platform.channel.send(replace(answer(platform, "Really?"), buttons=(Button("Yes", "/yes"),)))
    await platform.buttons(1)
    gateway.failures_left = 2
    platform.presses("/yes")
    await gateway.received(1)
    assert len({inbound.platform_id for inbound in gateway.attempts}) == 1


async def test_where_there_are_no_buttons_the_text_says_everything(platform: ChannelUnderTest) -> None:
    await platform.channel.send(replace(answer(platform, "Really? /yes or /no"), buttons=(Button("Yes", "/yes"),)))
    assert await platform.shown(1) == ["Really? /yes or /no"]


async def test_typing_and_drafts_never_raise(platform: ChannelUnderTest) -> None:
    await platform.goes_down()
    await platform.channel.typing(platform.nowhere())
    await platform.channel.draft(platform.nowhere(), 1, "so far")
    await platform.channel.typing(replace(platform.nowhere(), chat="0"))
    await platform.comes_back()
    await platform.channel.draft(platform.nowhere(), 1, "so far")
    assert await platform.shown(0) == []

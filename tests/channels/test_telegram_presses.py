import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from channels.telegram.channel import Telegram
from gateway.domain.channels.channel import Button, Outgoing
from gateway.domain.conversation.inbound import Address
from tests.contract.telegram import telegram_on
from tests.contract.under_test import Gateway
from tests.fakes.log import Log
from tests.fakes.telegram import FakeTelegram, Sent

ADA = Address("telegram", "424242", "77")
PHOTO = [{"file_id": "a", "file_unique_id": "b", "width": 1, "height": 1}]


@dataclass
class Scene:
    platform: FakeTelegram
    channel: Telegram
    gateway: Gateway

    async def asks(self, address: Address = ADA) -> Sent:
        await self.channel.send(Outgoing(address, "Shall I?", "k", buttons=(Button("Yes", "yes"), Button("No", "no"))))
        return self.platform.sent[-1]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    async with FakeTelegram() as platform:
        channel, gateway = telegram_on(platform, Log()), Gateway()
        await channel.open()
        receiving = asyncio.create_task(channel.receive(gateway.accept))
        yield Scene(platform, channel, gateway)
        receiving.cancel()
        with suppress(asyncio.CancelledError):
            await receiving
        await channel.close()


async def test_a_pressed_button_stops_waiting_and_goes(scene: Scene) -> None:
    scene.platform.press(await scene.asks(), "yes")
    (pressed,) = await scene.gateway.received(1)
    assert (pressed.text, pressed.address) == ("yes", ADA)
    await scene.platform.wait_for(lambda tg: tg.answered == ["1"] and not tg.keyboards)


async def test_a_press_is_answered_only_once_it_is_accepted(scene: Scene) -> None:
    scene.gateway.open.clear()
    scene.platform.press(await scene.asks(), "yes")
    await scene.gateway.attempted(1)
    assert scene.platform.answered == []
    scene.gateway.open.set()
    await scene.platform.wait_for(lambda tg: tg.answered == ["1"])


async def test_in_a_group_nobody_can_take_away_the_buttons_of_another(scene: Scene) -> None:
    group = Address("telegram", "424242", "-5", "9")
    scene.platform.say("hello", -5, group=True)
    sent = await scene.asks(group)
    scene.platform.press(sent, "yes", sender=666)
    _, pressed = await scene.gateway.received(2)
    assert (pressed.sender.id, pressed.address, pressed.private) == ("666", group, False)
    scene.platform.press(sent, "no", sender=77)
    await scene.platform.wait_for(lambda tg: tg.answered == ["1", "2"])
    assert len(scene.platform.keyboards) == 1


async def test_a_press_under_a_message_out_of_reach_changes_nothing_there(scene: Scene) -> None:
    sent = await scene.asks()
    scene.platform.press(sent, "yes", reachable=False)
    scene.platform.press(sent, "no")
    assert [inbound.text for inbound in await scene.gateway.received(2)] == ["yes", "no"]
    await scene.platform.wait_for(lambda tg: len(tg.answered) == 2 and not tg.keyboards)
    assert [method for method, _ in scene.platform.calls].count("editmessagereplymarkup") == 1


async def test_a_press_that_cannot_be_answered_disturbs_nothing(scene: Scene) -> None:
    scene.platform.fault("answerCallbackQuery", 400, "Bad Request: query is too old")
    scene.platform.fault("editMessageReplyMarkup", 400, "Bad Request: message can't be edited")
    sent = await scene.asks()
    scene.platform.press(sent, "yes")
    scene.platform.press(sent, "no")
    await scene.platform.wait_for(lambda tg: tg.answered == ["2"] and not tg.keyboards)


LONG = "word " * 600
"""Apps cut what is too long for a message at a good place in the second half of what one may have."""


async def test_what_an_app_cut_up_is_one_message(scene: Scene) -> None:
    for text in (LONG, LONG, "the end"):
        scene.platform.say(text)
    parts = await scene.gateway.received(3)
    assert [part.album for part in parts] == ["paste:1", "paste:1", "paste:1"]


async def test_what_is_cut_up_goes_with_nobody_elses_words(scene: Scene) -> None:
    for sender, text in ((77, f"@fake_bot {LONG}"), (66, "unrelated"), (77, "the end")):
        scene.platform.say(text, -5, sender=sender, group=True)
    parts = await scene.gateway.received(3)
    assert [(part.album, part.addressed) for part in parts] == [("paste:1", True), ("", False), ("paste:1", False)]


async def test_what_is_short_or_comes_later_is_a_message_of_its_own(scene: Scene) -> None:
    scene.platform.say("x" * 2000)
    scene.platform.say("short")
    scene.platform.say(LONG)
    scene.platform.say("later", date=int(time.time()) + 5)
    assert [said.album for said in await scene.gateway.received(4)] == ["", "", "paste:3", ""]


async def test_parts_are_known_again_when_a_batch_comes_twice(scene: Scene) -> None:
    scene.gateway.failures_left = 1
    for text in (LONG, LONG, "the end"):
        scene.platform.say(text)
    await scene.gateway.received(3)
    assert len(scene.gateway.attempts) > 3
    assert {part.album for part in scene.gateway.attempts} == {"paste:1"}


MENTION = {"type": "mention", "offset": 0, "length": 9}

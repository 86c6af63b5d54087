"""Answers to what was typed or pressed in a chat that the app is not in."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from channels.slack.channel import Slack
from gateway.domain.channels.channel import Button, Outgoing, SendDelayed, SendFailed, SendUncertain
from gateway.domain.conversation.inbound import Address
from tests.channels.test_slack import receiving, settled
from tests.contract.slack import slack_on
from tests.fakes.log import Log
from tests.fakes.slack import REPLIES, FakeSlack

ELSEWHERE = Address("slack", "T1", "C9")


@pytest.fixture
async def platform() -> AsyncIterator[FakeSlack]:
    """The app is not in C9."""
    async with FakeSlack() as platform:
        yield platform


@pytest.fixture
async def channel(platform: FakeSlack, tmp_path: Path) -> AsyncIterator[Slack]:
    """Somebody typed /claw in C9."""
    channel = slack_on(platform, Log(), tmp_path)
    await channel.open()
    async with receiving(channel):
        platform.command("/claw", "status", "C9", name="general")
        await settled(platform)
    yield channel
    await channel.close()


def answer(text: str = "*all* is well", at: Address = ELSEWHERE, *buttons: Button) -> Outgoing:
    return Outgoing(at, text, "key", buttons=buttons)


async def test_whoever_typed_it_sees_the_answer_and_nobody_else(platform: FakeSlack, channel: Slack) -> None:
    await channel.send(answer())
    [shown] = platform.replies
    assert (shown["text"], shown["response_type"], shown["unfurl_links"]) == ("_all_ is well", "ephemeral", False)
    assert platform.sent == []


async def test_buttons_are_shown_with_it(platform: FakeSlack, channel: Slack) -> None:
    await channel.send(answer("Let it?", ELSEWHERE, Button("Yes", "/approve A1")))
    [shown] = platform.replies
    assert [block["type"] for block in shown["blocks"]] == ["section", "actions"]


@pytest.mark.parametrize("code", ["not_in_channel", "channel_not_found"])
async def test_it_is_answered_after_a_restart_too(
    platform: FakeSlack, channel: Slack, tmp_path: Path, code: str
) -> None:
    next_life = slack_on(platform, Log(), tmp_path)
    await next_life.open()
    platform.fault("chat.postMessage", code)
    await next_life.send(answer())
    await next_life.close()
    assert len(platform.replies) == 1


async def test_where_the_app_is_everybody_sees_the_answer(platform: FakeSlack, channel: Slack) -> None:
    platform.messages["C9"] = []
    await channel.send(answer())
    assert (len(platform.sent), platform.replies) == (1, [])


async def test_the_newest_command_is_answered(platform: FakeSlack, channel: Slack) -> None:
    async with receiving(channel):
        platform.command("/claw", "status", "C9", name="general")
        await settled(platform)
    for _ in range(REPLIES):
        await channel.send(answer())
    assert len({reply["to"] for reply in platform.replies}) == 1
    with pytest.raises(SendFailed, match="not in it; invite it there"):
        await channel.send(answer())


@pytest.mark.parametrize(
    ("status", "error"), [(429, SendDelayed), (500, SendUncertain), (403, SendFailed), (404, SendFailed)]
)
async def test_what_slack_answers_there_is_told(
    platform: FakeSlack, channel: Slack, status: int, error: type[Exception]
) -> None:
    platform.fault("reply", "x", status=status, Retry_After="3")
    with pytest.raises(error):
        await channel.send(answer())
    assert platform.replies == []


async def test_other_refusals_and_other_chats_stay_refused(platform: FakeSlack, channel: Slack) -> None:
    platform.fault("chat.postMessage", "is_archived")
    for at in (ELSEWHERE, Address("slack", "T1", "C8")):
        with pytest.raises(SendFailed):
            await channel.send(answer(at=at))
    assert platform.replies == []


async def test_an_answer_goes_to_slack_only(platform: FakeSlack, channel: Slack) -> None:
    async with FakeSlack() as stranger, receiving(channel):
        stranger.command("/claw", "status", "C9", name="general")
        platform.pending += stranger.pending
        await settled(platform)
        with pytest.raises(SendFailed):
            await channel.send(answer())
        assert stranger.replies == []

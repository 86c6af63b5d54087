"""What slack-bolt is asked to do, and what it would do by itself."""

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels.slack.channel import Slack
from tests.channels.test_slack import receiving, settled
from tests.contract.slack import slack_on
from tests.contract.under_test import Gateway
from tests.fakes.log import Log
from tests.fakes.slack import US, FakeSlack

THREAD = {"chat": "D1", "kind": "im", "thread": "1.5"}
"""A conversation in Slack's assistant."""


@pytest.fixture
async def platform() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as platform:
        yield platform


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
async def channel(platform: FakeSlack, log: Log, tmp_path: Path) -> AsyncIterator[Slack]:
    channel = slack_on(platform, log, tmp_path)
    await channel.open()
    yield channel
    await channel.close()


def test_bolt_is_imported_when_the_channel_opens_and_not_before() -> None:
    program = """
import asyncio, sys
from pathlib import Path
from channels.slack import Settings, create, preload
from gateway.domain.channels.channel import NoFacts
from tests.fakes.log import Log
settings = Settings(bot_token="xoxb-1-a", app_token="xapp-1-a")
channel = create(settings, commands=(), log=Log(), data=Path("nowhere"), facts=NoFacts())
preload()
assert "slack_sdk" in sys.modules
assert "slack_bolt" not in sys.modules
asyncio.run(channel.open())
assert "slack_bolt.async_app" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


# --- the assistant ---


async def test_an_edit_in_the_assistant_is_taken_like_any_other(platform: FakeSlack, channel: Slack) -> None:
    async with receiving(channel) as gateway:
        said = platform.say("helo", **THREAD)
        platform.edit(said, "hello")
        first, edit = await gateway.received(2)
        await settled(platform)
    assert (first.address.thread, edit.address.thread) == ("1.5", "1.5")
    assert (edit.text, edit.edits) == ("hello", first.platform_id)


async def test_files_without_a_word_arrive_in_the_assistant_and_outside(platform: FakeSlack, channel: Slack) -> None:
    async with receiving(channel) as gateway:
        for where in (THREAD, {"chat": "77"}):
            platform.say("", files=(platform.file(b"x", "a.txt", "text/plain"),), **where)
        received = await gateway.received(2)
    assert [len(inbound.attachments) for inbound in received] == [1, 1]


@pytest.mark.parametrize("where", [THREAD, {"chat": "C5", "kind": "channel", "text": "<@UBOT> hi"}, {"chat": "77"}])
async def test_what_is_not_stored_is_tried_again_before_what_follows(
    platform: FakeSlack, channel: Slack, where: dict[str, Any]
) -> None:
    gateway = Gateway()
    gateway.failures_left = 3
    async with receiving(channel, gateway):
        where = {"text": "first"} | where
        said = platform.say(**where)
        platform.say(**where | {"text": "second"})
        platform.edit(said, "third")
        await settled(platform)
    ids = [inbound.platform_id for inbound in gateway.attempts]
    assert ids[:4] == [said["ts"]] * 4
    assert [inbound.text for inbound in gateway.accepted][1:] == ["second", "third"]


async def test_a_context_that_changed_asks_slack_nothing(platform: FakeSlack, channel: Slack) -> None:
    about = {"user_id": "U1", "channel_id": "D1", "thread_ts": "1.5", "context": {"channel_id": "C5"}}
    async with receiving(channel):
        platform.push({"type": "assistant_thread_context_changed", "assistant_thread": about})
        await settled(platform)
    assert {name for name, _ in platform.calls} == {"auth.test", "apps.connections.open"}


# --- what is for nobody ---


@pytest.mark.parametrize(
    "event",
    [
        {"type": "reaction_added", "user": "77", "item": {"type": "message", "channel": "77", "ts": "1.1"}},
        {"type": "message", "subtype": "message_deleted", "deleted_ts": "1.1"},
        {"type": "message", "subtype": "channel_join", "user": "77"},
        {"type": "message", "subtype": "message_changed", "message": {"ts": "1.1", "user": US["user_id"], "text": "x"}},
        {"type": "message", "user": US["user_id"], "text": "x"},
        {"type": "message", "bot_id": US["bot_id"], "text": "x"},
        {"type": "something_new"},
        {"type": None},
    ],
)
async def test_what_is_not_for_us_is_acknowledged(platform: FakeSlack, channel: Slack, event: dict[str, Any]) -> None:
    where = {"channel": "77", "channel_type": "im", "ts": "1.2", "event_ts": "1.2"}
    async with receiving(channel) as gateway:
        platform.push(where | event)
        platform.say("next")
        await gateway.received(1)
        await settled(platform)
    assert [inbound.text for inbound in gateway.attempts] == ["next"]


async def test_an_event_without_a_shape_holds_up_nobody(platform: FakeSlack, channel: Slack, log: Log) -> None:
    async with receiving(channel) as gateway:
        platform.push(["no", "event"])  # type: ignore[arg-type]
        platform.say("next")
        assert [inbound.text for inbound in await gateway.received(1)] == ["next"]
    assert log.named("slack.event_failed")


# --- what Bolt would ask by itself ---


async def test_who_we_are_is_asked_once_whatever_happens(platform: FakeSlack, channel: Slack) -> None:
    async with receiving(channel) as gateway:
        for _ in range(5):
            platform.say("hello")
            platform.command("/claw", "new")
        await gateway.received(10)
    assert len(platform.named("auth.test")) == 1


async def test_the_environment_leads_nothing_astray(
    platform: FakeSlack, channel: Slack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its proxy, for this API is our own, nor the keys of other apps of Slack's."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("SLACK_CLIENT_ID", "SLACK_CLIENT_SECRET", "SLACK_SIGNING_SECRET", "SLACK_BOT_TOKEN"):
        monkeypatch.setenv(name, "xoxb-other")
    opened = {"user_id": "U1", "channel_id": "D1", "thread_ts": "1.5", "context": {}}
    async with receiving(channel) as gateway:
        platform.push({"type": "assistant_thread_started", "assistant_thread": opened})
        platform.say("hello")
        await gateway.received(1)
        await settled(platform)
    assert len(platform.suggested) == 1


async def test_bolt_says_nothing_in_the_log(
    platform: FakeSlack, channel: Slack, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway()
    gateway.failures_left = 1
    async with receiving(channel, gateway):
        platform.push({"type": "something_new"})
        platform.say("hello")
        await settled(platform)
    assert [record.name for record in caplog.records if "slack" in record.name] == []


# --- edits that call us ---


async def test_an_edit_that_adds_our_name_is_addressed_to_us(platform: FakeSlack, channel: Slack) -> None:
    async with receiving(channel) as gateway:
        said = platform.say("what is up?", "C5", kind="channel")
        for text in ("<@UBOT> what is up?", "<@UBOT> what was up?"):
            platform.edit(said, text)
        platform.say("<@UBOT> and now?", "C5", kind="channel", thread=said["ts"])
        await settled(platform)
    overheard, edit, second_edit, next_one = gateway.accepted
    assert (overheard.addressed, edit.addressed, edit.text) == (False, True, "what is up?")
    assert [each.edits for each in (edit, second_edit)] == [overheard.platform_id] * 2, "so nothing is answered twice"
    assert next_one.quoted == "", "the thread is ours since the edit"


async def test_an_edit_stays_one_where_our_name_was_there_before(platform: FakeSlack, channel: Slack) -> None:
    async with receiving(channel) as gateway:
        said = platform.say("<@UBOT> what is up?", "C5", kind="channel")
        platform.edit(said, "<@UBOT> what was up?")
        private = platform.say("hi", "D1")
        platform.edit(private, "hi, <@UBOT>")
        await settled(platform)
    assert [inbound.edits for inbound in gateway.accepted] == [None, said["ts"], None, private["ts"]]

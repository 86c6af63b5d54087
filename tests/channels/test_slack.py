import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from channels.slack import Settings, create
from channels.slack.channel import Slack
from gateway.config.channels import parse_channel
from gateway.domain.channels.channel import Channel, Drafts, NoFacts, Outgoing, ProbedChannel
from gateway.domain.conversation.inbound import Address
from gateway.domain.errors import ConfigError, OwnerMustAct
from tests.contract.slack import slack_on
from tests.contract.under_test import Gateway
from tests.fakes.eventually import eventually
from tests.fakes.log import Log
from tests.fakes.slack import FakeSlack

TOKENS = {"bot_token": "xoxb-1-a", "app_token": "xapp-1-a"}
ADA = Address("slack", "T1", "77")


@pytest.fixture
async def platform() -> AsyncIterator[FakeSlack]:
    async with FakeSlack() as platform:
        yield platform


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def pauses() -> list[float]:
    return []


Build = Callable[..., Awaitable[Slack]]


@pytest.fixture
async def build(platform: FakeSlack, log: Log, pauses: list[float], tmp_path: Path) -> AsyncIterator[Build]:
    built: list[Slack] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0.01)

    async def build(**settings: Any) -> Slack:
        channel = slack_on(platform, log, tmp_path, pause=pause, **settings)
        await channel.open()
        built.append(channel)
        return channel

    yield build
    for channel in built:
        await channel.close()


@asynccontextmanager
async def receiving(channel: Channel, gateway: Gateway | None = None) -> AsyncIterator[Gateway]:
    gateway = gateway or Gateway()
    task = asyncio.create_task(channel.receive(gateway.accept))
    try:
        yield gateway
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def settled(platform: FakeSlack) -> None:
    """Everything was delivered and acknowledged."""
    await platform.wait_for(lambda slack: slack.connected and not slack.pending)


# --- settings ---


@pytest.mark.parametrize(
    "wrong", [{"bot_tokn": "x"}, {"base_url": "ftp://x"}, {"ping_interval": 0}, {"access": "all"}, {"app_token": None}]
)
def test_settings_refuse_what_they_do_not_know_and_keep_the_tokens_secret(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"bot_token": "xoxb-verysecret", "app_token": "xapp-verysecret"} | wrong)
    assert "verysecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "key"),
    [
        ({"bot_token": "xoxp-1-a"}, "bot_token"),
        ({"bot_token": "xoxb-"}, "bot_token"),
        ({"bot_token": "xoxb-1 a"}, "bot_token"),
        ({"app_token": "xoxb-1-a"}, "app_token"),
    ],
)
def test_a_token_of_another_kind_is_refused_before_anything_starts(wrong: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError, match=rf"^channels\.slack\.{key}: .*api\.slack\.com/apps"):
        parse_channel("slack", TOKENS | wrong, Settings)


def test_the_channel_is_what_the_gateway_expects() -> None:
    channel = create(Settings.model_validate(TOKENS), commands=(), log=Log(), data=Path("data"), facts=NoFacts())
    assert isinstance(channel, ProbedChannel)
    assert (channel.name, channel.heard_at) == ("slack", None)
    can = channel.capabilities
    assert (can.max_text, can.drafts, can.idempotent_send, can.buttons) == (4000, Drafts.THREADS, True, True)
    assert can.drafts_at(Address("slack", "T1", "C1", "1.1"), private=False)
    assert not can.drafts_at(ADA, private=True)


async def test_opening_asks_nothing_of_slack_which_may_be_away(platform: FakeSlack, build: Build) -> None:
    await platform.stop()
    channel = await build()
    async with receiving(channel) as gateway:
        await platform.start()
        platform.say("hello")
        (inbound,) = await gateway.received(1)
    assert inbound.address == ADA


async def test_a_channel_that_was_closed_can_be_opened_again(platform: FakeSlack, build: Build) -> None:
    channel = await build()
    for text in ("before", "after"):
        async with receiving(channel) as gateway:
            platform.say(text)
            assert [inbound.text for inbound in await gateway.received(1)] == [text]
            await settled(platform)
        await channel.close()
        await channel.open()
    await channel.send(Outgoing(ADA, "hello", "k"))
    assert platform.shown == ["hello"]


async def test_a_probe_tells_our_name_and_opens_no_socket(platform: FakeSlack, build: Build) -> None:
    channel = await build()
    assert await channel.probe() == "@claw"
    assert platform.sockets_opened == 0


async def test_a_probe_with_a_revoked_token_says_where_to_get_another(platform: FakeSlack, build: Build) -> None:
    platform.revoked = True
    with pytest.raises(OwnerMustAct, match=r"api\.slack\.com/apps"):
        await (await build()).probe()


# --- the socket ---


async def test_a_cut_connection_is_made_anew_and_loses_nothing(platform: FakeSlack, build: Build) -> None:
    async with receiving(await build()) as gateway:
        platform.say("before")
        await gateway.received(1)
        platform.kill()
        await platform.wait_for(lambda slack: not slack.connected)
        platform.say("after")
        assert [inbound.text for inbound in await gateway.received(2)] == ["before", "after"]
        await settled(platform)


async def test_a_connection_that_only_looks_alive_is_given_up(platform: FakeSlack, build: Build) -> None:
    channel = await build()
    async with receiving(channel) as gateway:
        await platform.wait_for(lambda slack: slack.connected)
        platform.frozen = True
        platform.say("anybody there?")
        await platform.wait_for(lambda slack: slack.sockets_opened == 2)
        platform.frozen = False
        await gateway.received(1)


async def test_slack_may_ask_for_a_new_connection(platform: FakeSlack, build: Build) -> None:
    async with receiving(await build()) as gateway:
        await platform.wait_for(lambda slack: slack.connected)
        await platform.disconnect()
        await platform.wait_for(lambda slack: slack.sockets_opened == 2)
        platform.say("hello again")
        await gateway.received(1)


async def test_an_idle_connection_is_heard_by_its_pongs(platform: FakeSlack, build: Build) -> None:
    channel = await build()
    async with receiving(channel):
        await platform.wait_for(lambda slack: slack.connected)
        first = time.monotonic()
        await eventually(lambda: (channel.heard_at or 0) > first)


async def test_frames_that_are_no_envelopes_are_skipped(platform: FakeSlack, build: Build, log: Log) -> None:
    async with receiving(await build()) as gateway:
        await platform.wait_for(lambda slack: slack.connected)
        for frame in ["", "nonsense", "[1]", "{}", '{"envelope_id": 5}', '{"envelope_id": "x", "type": "t"}']:
            await platform.send_raw(frame)
        platform.say("hello")
        await gateway.received(1)
    assert {name for _, name, _ in log.events} == {"slack.frame_skipped"}


async def test_revoked_tokens_are_reported_once_and_tried_slowly(
    platform: FakeSlack, build: Build, log: Log, pauses: list[float]
) -> None:
    platform.revoked = True
    channel = await build()
    async with receiving(channel) as gateway:
        await platform.wait_for(lambda slack: len(slack.calls) >= 3)
        assert channel.heard_at is not None
        platform.revoked = False
        platform.say("hello")
        await gateway.received(1)
        await log.heard("slack.recovered")
    (facts,) = log.named("slack.token_refused")
    assert "api.slack.com/apps" in str(facts["why"])
    assert set(pauses) == {30.0}


async def test_a_missing_permission_is_named(platform: FakeSlack, build: Build, log: Log, pauses: list[float]) -> None:
    platform.fault("apps.connections.open", "missing_scope")
    async with receiving(await build()):
        facts = await log.heard("slack.refused")
        await platform.wait_for(lambda slack: slack.connected)
    assert "install the app again" in str(facts["why"])
    assert pauses == [30.0]


async def test_a_rate_limit_is_kept(platform: FakeSlack, build: Build, pauses: list[float]) -> None:
    platform.fault("apps.connections.open", "ratelimited", status=429, Retry_After="17")
    async with receiving(await build()) as gateway:
        platform.say("hello")
        await gateway.received(1)
    assert pauses == [17.0]


# --- intake ---


async def test_what_makes_us_stumble_is_not_acknowledged_and_holds_up_nobody(
    platform: FakeSlack, build: Build, log: Log
) -> None:
    gateway = Gateway()
    stumbled = False

    async def accept(batch: Any) -> None:
        nonlocal stumbled
        if batch[0].text == "odd" and not stumbled:
            stumbled = True
            raise RuntimeError("our bug")
        await gateway.accept(batch)

    platform.retry_seconds = 0.1
    channel = await build()
    task = asyncio.create_task(channel.receive(accept))
    platform.say("odd")
    platform.say("even")
    assert [inbound.text for inbound in await gateway.received(2)] == ["even", "odd"]
    await settled(platform)
    task.cancel()
    await asyncio.wait([task])
    assert len(log.named("slack.event_failed")) == 1


async def test_what_comes_again_because_it_was_slow_is_taken_once(platform: FakeSlack, build: Build) -> None:
    platform.retry_seconds = 0.05
    async with receiving(await build()) as gateway:
        gateway.open.clear()
        platform.say("slow")
        await gateway.attempted(1)
        await platform.wait_for(lambda slack: slack.pending[0].attempts >= 3)
        gateway.open.set()
        await settled(platform)
        platform.say("next")
        await gateway.received(2)
    assert [inbound.text for inbound in gateway.attempts] == ["slow", "next"]


async def test_a_flood_is_taken_in_piece_by_piece(platform: FakeSlack, build: Build) -> None:
    platform.retry_seconds = 0.1
    async with receiving(await build()) as gateway:
        gateway.open.clear()
        texts = {str(number) for number in range(1010)}
        for text in texts:
            platform.say(text)
        await platform.wait_for(lambda slack: all(delivery.attempts for delivery in slack.pending))
        gateway.open.set()
        await settled(platform)
    assert {inbound.text for inbound in gateway.accepted} == texts


async def test_a_mention_is_one_message_in_a_thread_of_its_own(platform: FakeSlack, build: Build) -> None:
    async with receiving(await build()) as gateway:
        said = platform.say("<@UBOT> what is <@77|x> up to?", "C5", kind="channel")
        await settled(platform)
    (inbound,) = gateway.accepted
    assert (inbound.text, inbound.addressed, inbound.private) == ("what is @x up to?", True, False)
    assert inbound.address == Address("slack", "T1", "C5", said["ts"])
    assert (inbound.sender.id, inbound.sender.name) == ("77", "Ada")


async def test_a_thread_with_us_needs_no_mention_even_after_a_restart(platform: FakeSlack, build: Build) -> None:
    async with receiving(await build()):
        root = platform.say("<@UBOT> hello", "C5", kind="channel")["ts"]
        platform.say("what is up?", "C5", kind="channel", thread=root)
        await settled(platform)
    async with receiving(await build()) as gateway:
        platform.say("and now?", "C5", kind="channel", thread=root)
        platform.say("<@U9> look at this", "C5", kind="channel", thread=root)
        platform.say("elsewhere", "C5", kind="channel", thread="99.1")
        await gateway.received(3)
    assert [inbound.addressed for inbound in gateway.accepted] == [True, False, False]


async def test_whoever_calls_us_into_a_thread_need_not_repeat_it(platform: FakeSlack, build: Build) -> None:
    async with receiving(await build()) as gateway:
        root = platform.say("Lunch at &lt;noon&gt;?", "C5", kind="channel")["ts"]
        platform.say("<@77> why not", "C5", kind="channel", thread=root, sender="U8")
        for _ in range(2):
            platform.say("<@UBOT> what do you say?", "C5", kind="channel", thread=root)
            await settled(platform)
    assert [inbound.quoted for inbound in gateway.accepted] == ["", "", "Ada: Lunch at <noon>?\nU8: @Ada why not", ""]


async def test_of_a_long_thread_the_end_is_told_and_nothing_that_slack_says(platform: FakeSlack, build: Build) -> None:
    platform.page = 1000
    async with receiving(await build()) as gateway:
        root = platform.say("0", "C5", kind="channel")["ts"]
        for number in range(1, 250):
            platform.say(str(number), "C5", kind="channel", thread=root)
        platform.say("Ada has joined", "C5", kind="channel", thread=root)
        platform.messages["C5"][-1]["subtype"] = "channel_join"
        platform.say("<@UBOT> what do you say?", "C5", kind="channel", thread=root)
        received = await gateway.received(252)
    [inbound] = [each for each in received if "what do you say" in each.text]
    assert inbound.quoted.endswith("\nAda: 248\nAda: 249")


ROOT = "Which of the three offers do we take? " * 8


async def test_of_a_longer_thread_root_and_newest_replies_are_told_and_the_cut_between(
    platform: FakeSlack, build: Build
) -> None:
    platform.page = 7
    async with receiving(await build()) as gateway:
        root = platform.say(ROOT, "C5", kind="channel")["ts"]
        for number in range(1, 31):
            platform.say(f"{number} {'x' * 200}", "C5", kind="channel", thread=root)
        platform.say("<@UBOT> decide", "C5", kind="channel", thread=root)
        received = await gateway.received(32)
    [inbound] = [each for each in received if "decide" in each.text]
    first, gap, *newest = inbound.quoted.splitlines()
    assert first.strip() == f"Ada: {ROOT}".strip()
    assert gap == f"[… {30 - len(newest)} messages left out here …]"
    assert [line.split()[1] for line in newest] == [str(number) for number in range(31 - len(newest), 31)]
    assert len(newest) > 10
    assert len(inbound.quoted) < 4000


async def test_the_files_of_a_thread_come_with_the_mention(platform: FakeSlack, build: Build) -> None:
    chart = platform.file(b"png", "chart.png", "image/png")
    channel = await build()
    async with receiving(channel) as gateway:
        root = platform.say("numbers for May", "C5", kind="channel", files=(chart,))["ts"]
        platform.say("<@UBOT> what does it say?", "C5", kind="channel", thread=root)
        received = await gateway.received(2)
    [inbound] = [each for each in received if each.addressed]
    assert inbound.quoted == "Ada: numbers for May\n[file chart.png]"
    [file] = inbound.quoted_files
    assert (file.name, inbound.attachments) == ("chart.png", ())
    assert b"".join([piece async for piece in channel.fetch(file)]) == b"png"


@pytest.mark.parametrize("is_root", [False, True])
async def test_a_deletion_names_the_message(platform: FakeSlack, build: Build, *, is_root: bool) -> None:
    async with receiving(await build()) as gateway:
        said = platform.say("<@UBOT> meet at 5", "C5", kind="channel")
        if is_root:
            platform.say("fine", "C5", kind="channel", thread=said["ts"], sender="U8")
        await settled(platform)
        platform.delete(said)
        await settled(platform)
    deletion = gateway.accepted[-1]
    assert (deletion.edits, deletion.deleted, deletion.text) == (said["ts"], True, "")
    assert (deletion.address, deletion.sender.id) == (gateway.accepted[0].address, "77")
    assert deletion.platform_id != said["ts"]


async def test_a_thread_that_slack_does_not_tell_is_left_out(platform: FakeSlack, build: Build) -> None:
    platform.fault("conversations.replies", "missing_scope")
    async with receiving(await build()) as gateway:
        platform.say("<@UBOT> what do you say?", "C5", kind="channel", thread="99.1")
        (inbound,) = await gateway.received(1)
    assert (inbound.quoted, inbound.address.thread) == ("", "99.1")


async def test_people_without_a_name_keep_their_id(platform: FakeSlack, build: Build) -> None:
    async with receiving(await build()) as gateway:
        platform.say("<@U404> and <@77> are here", sender="U8")
        (inbound,) = await gateway.received(1)
    assert (inbound.sender.name, inbound.text) == ("U8", "@U404 and @Ada are here")


async def test_the_senders_zone_comes_with_what_they_say_in_private(platform: FakeSlack, build: Build) -> None:
    platform.names["8"] = "Bob"
    platform.zones["77"] = "Europe/Berlin"
    async with receiving(await build()) as gateway:
        platform.say("hello")
        platform.say("and again")
        platform.say("from Bob, <@77>", sender="8")
        platform.say("<@UBOT> in a channel", "C5", kind="channel")
        received = await gateway.received(4)
    assert {inbound.text: inbound.zone for inbound in received} == {
        "hello": "Europe/Berlin",
        "and again": "Europe/Berlin",
        "from Bob, @Ada": "",
        "in a channel": "",
    }
    assert len(platform.named("users.info")) == 2


async def test_nobody_waits_for_a_name_and_it_is_asked_for_until_it_is_known(platform: FakeSlack, build: Build) -> None:
    platform.fault("users.info", "internal_error", status=500)
    async with receiving(await build()) as gateway:
        for _ in range(3):
            platform.say("hello")
        first, *others = await gateway.received(3)
    assert (first.sender.name, [inbound.sender.name for inbound in others]) == ("77", ["Ada", "Ada"])
    assert len(platform.named("users.info")) == 2


async def test_a_slash_command_is_acknowledged_after_it_was_accepted(platform: FakeSlack, build: Build) -> None:
    async with receiving(await build()) as gateway:
        gateway.open.clear()
        platform.command("/claw", "new")
        await gateway.attempted(1)
        assert len(platform.pending) == 1
        gateway.open.set()
        await settled(platform)
    assert (gateway.accepted[0].text, gateway.accepted[0].address) == ("/new", ADA)


async def test_a_thread_shows_that_we_are_at_it_and_a_chat_cannot(platform: FakeSlack, build: Build) -> None:
    channel = await build()
    await channel.typing(ADA)
    await channel.typing(Address("slack", "T1", "C5", "1.5"))
    platform.fault("assistant.threads.setStatus", "missing_scope")
    await channel.typing(Address("slack", "T1", "C5", "1.5"))
    assert platform.statuses == [("C5", "1.5", "is thinking…")]


async def test_a_new_conversation_with_the_assistant_offers_things_to_ask(platform: FakeSlack, build: Build) -> None:
    async with receiving(await build()) as gateway:
        opened = {"user_id": "U1", "channel_id": "D1", "thread_ts": "1.5", "context": {}}
        platform.push({"type": "assistant_thread_started", "assistant_thread": opened})
        platform.fault("assistant.threads.setSuggestedPrompts", "missing_scope")
        await settled(platform)
        platform.push({"type": "assistant_thread_started", "assistant_thread": opened})
        await settled(platform)
    [(chat, thread, titles)] = platform.suggested
    assert (chat, thread, len(titles), gateway.accepted) == ("D1", "1.5", 3, [])


# --- reactions ---


async def test_a_message_is_marked_as_seen_and_unmarked(platform: FakeSlack, build: Build) -> None:
    channel, ts = await build(), platform.say("hello")["ts"]
    for _ in range(2):
        await channel.react(ADA, ts, seen=True)
    assert platform.reactions == [("77", ts, "eyes")]
    for _ in range(2):
        await channel.react(ADA, f"{ts}:{ts}", seen=False)
    assert platform.reactions == []


async def test_a_command_and_a_press_have_no_message_to_mark(platform: FakeSlack, build: Build) -> None:
    channel = await build()
    for id in ("command:1.2.x", "button:1.2:1.3"):
        await channel.react(ADA, id, seen=True)
    assert platform.calls == []

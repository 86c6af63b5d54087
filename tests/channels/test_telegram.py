import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import ValidationError

from channels.telegram import Settings, create
from channels.telegram.channel import Telegram
from channels.telegram.reception import PollTimeouts
from gateway.config.channels import parse_channel
from gateway.domain.channels.channel import (
    Button,
    Channel,
    NoFacts,
    Outgoing,
    SendDelayed,
    SendFailed,
    SendUncertain,
    WebhookChannel,
    WebhookReply,
)
from gateway.domain.conversation.inbound import Address, Inbound
from gateway.domain.errors import ConfigError
from tests.contract.under_test import Gateway
from tests.fakes.log import Log
from tests.fakes.telegram import FakeTelegram

ADA = Address("telegram", "424242", "77")
SECRET = "hook-secret"


@pytest.fixture
async def platform() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as platform:
        yield platform


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def pauses() -> list[float]:
    return []


Build = Callable[..., Awaitable[Telegram]]


@pytest.fixture
async def build(platform: FakeTelegram, log: Log, pauses: list[float]) -> AsyncIterator[Build]:
    built: list[Telegram] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0.01)

    async def build(**settings: Any) -> Telegram:
        given = {"token": platform.token, "api_base": platform.url, "webhook_url": None, "webhook_secret": SECRET}
        parts: dict[str, Any] = (
            given | {"commands": [("new", "Start afresh")], "timeouts": PollTimeouts(poll=1)} | settings
        )
        channel = Telegram(log=log, pause=pause, **parts)
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


# --- settings ---


def test_settings_take_ids_as_numbers_or_text() -> None:
    settings = Settings.model_validate({"token": "1:a", "allow": [123, "456"]})
    assert settings.allow == ("123", "456")
    assert (settings.access, settings.mode) == ("allowlist", "polling")


@pytest.mark.parametrize(
    "wrong",
    [
        {"tokn": "x"},
        {"mode": "push"},
        {"mode": "webhook"},
        {"access": "all"},
        {"api_base": "ftp://x"},
        {"allow": [True]},
    ],
)
def test_settings_refuse_what_they_do_not_know_and_keep_the_token_secret(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate({"token": "1:verysecret"} | wrong)
    assert "verysecret" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "abc", "x:abc", "12:", "12:a b"])
def test_a_token_that_is_none_is_refused_before_anything_starts(token: str) -> None:
    with pytest.raises(ConfigError, match="@BotFather"):
        parse_channel("telegram", {"token": token}, Settings)


def test_the_channel_is_what_the_gateway_expects() -> None:
    settings = {"token": "1:a", "mode": "webhook", "webhook_url": "https://me.example/webhook/telegram"}
    channel = create(Settings.model_validate(settings), commands=(), log=Log(), data=Path("data"), facts=NoFacts())
    assert isinstance(channel, WebhookChannel)


async def test_a_channel_that_was_never_opened_can_be_closed_and_nothing_else() -> None:
    settings = Settings.model_validate({"token": "1:a", "webhook_secret": "s"})
    channel = create(settings, commands=(), log=Log(), data=Path("data"), facts=NoFacts())
    await channel.close()
    with pytest.raises(RuntimeError, match="not open"):
        await channel.typing(ADA)


# --- polling ---


async def test_nothing_comes_before_the_first_poll(platform: FakeTelegram, build: Build) -> None:
    async with receiving(await build()):
        await platform.wait_for(lambda tg: bool(tg.polls))
        assert platform.calls == []
        await platform.wait_for(lambda tg: bool(tg.commands))
    assert [method for method, _ in platform.calls] == ["getme", "setmycommands"]
    assert platform.commands == [{"command": "new", "description": "Start afresh"}]


async def test_only_the_kinds_of_updates_that_are_handled_are_asked_for(platform: FakeTelegram, build: Build) -> None:
    async with receiving(await build()) as gateway:
        platform.say("hello")
        await gateway.received(1)
    assert platform.allowed_updates == [
        "message",
        "edited_message",
        "callback_query",
        "stopped_message_generation",
    ]


async def test_a_menu_that_cannot_be_set_disturbs_nothing(platform: FakeTelegram, build: Build, log: Log) -> None:
    platform.fault("setMyCommands", 400, "Bad Request: BOT_COMMAND_INVALID")
    async with receiving(await build()) as gateway:
        assert "BOT_COMMAND_INVALID" in str((await log.heard("telegram.menu_not_set"))["why"])
        platform.say("hello")
        await gateway.received(1)


async def test_a_webhook_left_from_earlier_is_removed_and_loses_nothing(
    platform: FakeTelegram, build: Build, pauses: list[float]
) -> None:
    platform.say("waiting")
    platform.set_webhook("http://127.0.0.1:9/gone")
    async with receiving(await build()) as gateway:
        await gateway.received(1)
    assert ("deletewebhook", {}) in platform.calls
    assert pauses == []


async def test_a_webhook_that_comes_back_is_left_to_its_owner(platform: FakeTelegram, build: Build, log: Log) -> None:
    platform.fault("getUpdates", 409, "Conflict: can't use getUpdates method while webhook is active", n=3)
    async with receiving(await build()) as gateway:
        platform.say("hello")
        await gateway.received(1)
    assert [method for method, _ in platform.calls].count("deletewebhook") == 1
    assert len(log.named("telegram.other_receiver")) == 1


async def test_a_webhook_that_cannot_be_removed_is_tried_later(platform: FakeTelegram, build: Build, log: Log) -> None:
    platform.set_webhook("http://127.0.0.1:9/gone")
    platform.fault("deleteWebhook", 500)
    async with receiving(await build()):
        await log.heard("telegram.unreachable")
        platform.set_webhook("")
        await log.heard("telegram.recovered")


async def test_another_poller_is_reported_once(platform: FakeTelegram, build: Build, log: Log) -> None:
    platform.fault("getUpdates", 409, "Conflict: terminated by other getUpdates request", n=3)
    async with receiving(await build()) as gateway:
        platform.say("hello")
        await gateway.received(1)
        await log.heard("telegram.recovered")
    (facts,) = log.named("telegram.other_receiver")
    assert "another program uses this bot's token" in str(facts["why"])


@pytest.mark.parametrize("code", [401, 404])
async def test_a_refused_token_is_reported_once_and_tried_slowly(
    platform: FakeTelegram, build: Build, log: Log, pauses: list[float], code: int
) -> None:
    platform.fault("getUpdates", code, n=3)
    async with receiving(await build()) as gateway:
        platform.say("hello")
        await gateway.received(1)
    assert pauses == [30, 30, 30]
    assert "@BotFather" in str(log.named("telegram.token_refused")[0]["why"])
    assert len(log.named("telegram.token_refused")) == 1


async def test_a_stalled_poll_is_given_up_and_asked_anew(platform: FakeTelegram, build: Build, log: Log) -> None:
    platform.hang("getUpdates")
    async with receiving(await build(timeouts=PollTimeouts(poll=1, stall=0.3))) as gateway:
        platform.say("hello")
        assert "no answer" in str((await log.heard("telegram.unreachable"))["why"])
        platform.release()
        await gateway.received(1)


async def test_a_command_does_not_wait_until_the_messages_of_other_chats_are_stored(
    platform: FakeTelegram, build: Build
) -> None:
    commands, stored, hindered = asyncio.Queue[Inbound](), list[str](), asyncio.Event()

    async def accept(batch: Sequence[Inbound]) -> None:
        if batch[0].text.startswith("/"):
            for inbound in batch:
                commands.put_nowait(inbound)
        else:
            hindered.set()
            await released.wait()
        stored.extend(inbound.text for inbound in batch)

    released = asyncio.Event()
    receiving = asyncio.create_task((await build()).receive(accept))
    platform.say("hello", chat=1)
    await hindered.wait()
    platform.say("/stop", chat=1)  # behind what is being stored
    platform.say("more", chat=2)
    platform.say("/stop", chat=2)  # behind what is not
    platform.say("/stop", chat=3)
    assert (await asyncio.wait_for(commands.get(), 10)).address.chat == "3"
    assert stored == ["/stop"]
    released.set()
    await platform.wait_for(lambda tg: not tg.pending)
    receiving.cancel()
    assert stored[-4:] == ["/stop", "more", "/stop", "/stop"]
    assert "hello" in stored[:-4]


async def test_an_outage_is_reported_once_and_waits_longer_and_longer(
    platform: FakeTelegram, build: Build, log: Log, pauses: list[float]
) -> None:
    platform.fault("getUpdates", 502, n=8)
    async with receiving(await build()) as gateway:
        platform.say("hello")
        await gateway.received(1)
    assert len(log.named("telegram.unreachable")) == 1
    assert all(limit / 2 <= pause <= limit for pause, limit in zip(pauses, [1, 2, 4, 8, 8, 8, 8, 8], strict=True))


async def test_flood_control_and_refusals_of_polls_are_waited_out(
    platform: FakeTelegram, build: Build, log: Log, pauses: list[float]
) -> None:
    platform.fault("getUpdates", 429, "Too Many Requests", retry_after=11)
    async with receiving(await build()) as gateway:
        await platform.wait_for(lambda tg: bool(tg.commands))
        assert pauses == [11]
        platform.fault("getUpdates", 400, "Bad Request: odd")
        platform.say("hello")
        await log.heard("telegram.refused")
        await gateway.received(1)


@pytest.mark.parametrize("told", [0, -5, "soon", None])
async def test_a_poll_that_is_too_early_without_a_time_to_wait_is_asked_again_later(
    platform: FakeTelegram, build: Build, pauses: list[float], told: object
) -> None:
    platform.fault("getUpdates", 429, "Too Many Requests", n=3, **({} if told is None else {"retry_after": told}))
    async with receiving(await build()) as gateway:
        platform.say("hello")
        await gateway.received(1)
    assert all(limit / 2 <= pause <= limit for pause, limit in zip(pauses, [1, 2, 4], strict=True))


async def test_telegram_is_heard_whenever_it_answers_a_poll(platform: FakeTelegram, build: Build, log: Log) -> None:
    channel = await build()
    assert channel.heard_at is None
    platform.fault("getUpdates", 502, n=1)
    async with receiving(channel):
        await log.heard("telegram.unreachable")
        assert channel.heard_at is None
        platform.fault("getUpdates", 409, "Conflict: terminated by other getUpdates request")
        await log.heard("telegram.other_receiver")
        refused_at = channel.heard_at
        assert refused_at is not None
        platform.say("hello")
        await platform.wait_for(lambda tg: tg.acknowledged > 0)
        assert channel.heard_at > refused_at


async def test_a_bug_behind_accept_is_logged_and_loses_nothing(platform: FakeTelegram, build: Build, log: Log) -> None:
    class Buggy(Gateway):
        async def accept(self, batch: Any) -> None:
            if not log.named("telegram.batch_failed"):
                raise ZeroDivisionError("oops")
            await super().accept(batch)

    async with receiving(await build(), Buggy()) as gateway:
        platform.say("hello")
        await gateway.received(1)
    assert len(log.named("telegram.batch_failed")) == 1


@pytest.mark.parametrize("api_base", ["http://127.0.0.1:1/x y", "http://127.0.0.1:99999"])
async def test_the_token_never_reaches_the_log(platform: FakeTelegram, build: Build, log: Log, api_base: str) -> None:
    channel = await build(api_base=api_base)
    async with receiving(channel):
        await log.heard("telegram.unreachable")
    with pytest.raises(SendDelayed) as caught:
        await channel.send(Outgoing(ADA, "hello", "k"))
    assert platform.token not in f"{log.events} {caught.value!r} {caught.value.__cause__!r}"


# --- sending ---


async def test_an_answer_is_formatted_and_shows_no_link_preview(platform: FakeTelegram, build: Build) -> None:
    address = Address("telegram", "424242", "-5", "9")
    sent_id = await (await build()).send(Outgoing(address, "**hi** https://e.org", "k"))
    (sent,) = platform.sent
    assert (sent.raw, sent.parse_mode, sent.chat, sent.thread) == ("<b>hi</b> https://e.org", "HTML", -5, 9)
    assert sent_id == str(sent.message_id)
    assert platform.calls[0][1]["link_preview_options"] == '{"is_disabled": true}'


async def test_formatting_that_is_refused_is_dropped(platform: FakeTelegram, build: Build) -> None:
    platform.fault("sendMessage", 400, "Bad Request: ENTITY_BOUNDS_INVALID")
    await (await build()).send(Outgoing(ADA, "**hi**", "k"))
    assert [(sent.raw, sent.parse_mode) for sent in platform.sent] == [("**hi**", None)]


@pytest.mark.parametrize("text", ["|a|b|\n|-|-|\n" + f"|{'x' * 2000}|y|\n|z|w|\n|z|w|", "[ ](https://e.org)", "> \n>"])
async def test_what_formatting_would_make_too_long_or_empty_is_sent_plain(
    platform: FakeTelegram, build: Build, text: str
) -> None:
    await (await build(rich=False)).send(Outgoing(ADA, text, "k"))
    assert [(sent.raw, sent.parse_mode) for sent in platform.sent] == [(text, None)]


@pytest.mark.parametrize(
    ("code", "description", "outcome"),
    [
        (400, "Bad Request: chat not found", SendFailed),
        (403, "Forbidden: bot was kicked from the group chat", SendFailed),
        (413, "Request Entity Too Large", SendFailed),
        (418, "I am a teapot", SendDelayed),
        (401, "Unauthorized", SendDelayed),
        (500, "Internal Server Error", SendUncertain),
        (502, "Bad Gateway", SendUncertain),
    ],
)
async def test_each_refusal_has_its_outcome(
    platform: FakeTelegram, build: Build, code: int, description: str, outcome: type[Exception]
) -> None:
    platform.fault("sendMessage", code, description, n=2)
    with pytest.raises(outcome) as caught:
        await (await build()).send(Outgoing(ADA, "hello", "k"))
    assert "\n" not in str(caught.value)
    assert platform.sent == []


async def test_a_group_that_moved_is_followed(platform: FakeTelegram, build: Build) -> None:
    channel, group = await build(), Address("telegram", "424242", "-5")
    platform.fault("sendMessage", 400, "Bad Request: group chat was upgraded", migrate_to_chat_id=-100123)
    await channel.send(Outgoing(group, "**hello**", "k", private=False, reply_to="12"))
    await channel.send(Outgoing(group, "again", "l", private=False))
    await channel.typing(group)
    assert [(sent.chat, sent.text, sent.reply_to) for sent in platform.sent] == [
        (-100123, "hello", None),
        (-100123, "again", None),
    ]
    assert platform.actions == [(-100123, "typing")]
    assert sum(method == "sendmessage" for method, _ in platform.calls) == 3


async def test_a_group_that_moves_to_and_fro_waits(platform: FakeTelegram, build: Build) -> None:
    platform.fault("sendMessage", 400, "Bad Request: group chat was upgraded", n=2, migrate_to_chat_id=-100123)
    with pytest.raises(SendDelayed, match=r"supergroup with id -100123[^\n]*$"):
        await (await build()).send(Outgoing(ADA, "hello", "k"))


async def test_an_unreadable_receipt_leaves_the_send_uncertain(platform: FakeTelegram, build: Build) -> None:
    platform.fault("sendMessage", 200, "this is no message")
    with pytest.raises(SendUncertain, match="unreadable"):
        await (await build()).send(Outgoing(ADA, "hello", "k"))


# --- drafts and typing ---


async def test_a_draft_shows_the_newest_text_and_can_be_stopped(platform: FakeTelegram, build: Build) -> None:
    channel = await build()
    await channel.draft(ADA, 1, "x" * 5000 + "🙂end")
    ((chat, draft, text),) = platform.drafts
    assert (chat, draft) == (77, 1)
    assert text == "x" * 4091 + "🙂end"
    assert platform.calls[0][1]["can_stop"] == "true"
    async with receiving(channel) as gateway:
        platform.say("hello")
        platform.stop_draft(77, 1)
        assert (await gateway.received(2))[1].text == "/stop"


async def test_flood_control_silences_drafts_for_its_time(platform: FakeTelegram, build: Build) -> None:
    channel = await build()
    platform.fault("sendMessageDraft", 429, "Too Many Requests", retry_after=600)
    await channel.draft(ADA, 1, "one")
    await channel.draft(ADA, 1, "two")
    assert [method for method, _ in platform.calls] == ["sendmessagedraft"]


async def test_what_is_being_answered_is_marked_in_groups_and_nothing_is_asked_in_private(
    platform: FakeTelegram, build: Build
) -> None:
    channel, group = await build(), Address("telegram", "424242", "-5", "9")
    await channel.react(group, "12:99", seen=True)
    await channel.react(group, "12", seen=False)
    await channel.react(group, "button:1", seen=True)
    await channel.react(ADA, "12", seen=True)
    platform.fault("setMessageReaction", 400, "Bad Request: REACTION_INVALID")
    await channel.react(group, "12", seen=True)
    assert platform.reactions == [(-5, 12, ["👀"]), (-5, 12, [])]


async def test_typing_is_shown_where_the_answer_will_be(platform: FakeTelegram, build: Build) -> None:
    await (await build()).typing(Address("telegram", "424242", "-5", "9"))
    assert platform.actions == [(-5, "typing")]
    assert platform.calls[0][1]["message_thread_id"] == "9"


# --- webhook ---


class Site:
    """A web server that hands requests to `deliver`, as the gateway's does."""

    def __init__(self) -> None:
        self.channel: Telegram | None = None
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        assert self.channel is not None
        reply = self.channel.refuses(request.headers) or await self.channel.deliver(await request.read())
        return web.Response(status=reply.status, text=reply.text)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    app = web.Application()
    app.router.add_post("/webhook/telegram", site.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    site.url = f"http://127.0.0.1:{runner.addresses[0][1]}/webhook/telegram"
    yield site
    await runner.cleanup()


@pytest.fixture
async def pushed(platform: FakeTelegram, build: Build) -> AsyncIterator[tuple[Telegram, Gateway]]:
    """A channel whose webhook is announced, and what it hands over; deliveries are made by hand."""
    channel = await build(webhook_url="http://127.0.0.1:9/webhook/telegram")
    async with receiving(channel) as gateway:
        await platform.wait_for(lambda tg: bool(tg.commands))
        yield channel, gateway


def body_of(text: str, number: int = 1) -> bytes:
    person = {"id": 77, "is_bot": False, "first_name": "Ada"}
    message = {"message_id": number, "date": 1, "chat": {"id": 77, "type": "private"}, "from": person, "text": text}
    return json.dumps({"update_id": number, "message": message}).encode()


WITH_SECRET = {"X-Telegram-Bot-Api-Secret-Token": SECRET}


async def test_updates_are_pushed_in_order_and_repeated_until_accepted(
    platform: FakeTelegram, build: Build, site: Site, log: Log
) -> None:
    platform.fault("setWebhook", 500)
    platform.say("one")
    site.channel = await build(webhook_url=site.url)
    gateway = Gateway()
    gateway.failures_left = 2
    async with receiving(site.channel, gateway):
        platform.say("two")
        assert [inbound.text for inbound in await gateway.received(2)] == ["one", "two"]
        await platform.wait_for(lambda tg: not tg.pending and bool(tg.commands))
    assert [inbound.text for inbound in gateway.attempts] == ["one", "one", "one", "two"]
    assert len(log.named("telegram.unreachable")) == 1
    announced = [params for method, params in platform.calls if method == "setwebhook"][-1]
    assert (announced["max_connections"], announced["secret_token"]) == ("1", SECRET)


async def test_presses_stops_and_files_are_pushed_as_they_are_polled(
    platform: FakeTelegram, build: Build, site: Site
) -> None:
    site.channel = await build(webhook_url=site.url)
    async with receiving(site.channel) as gateway:
        await platform.wait_for(lambda tg: bool(tg.commands))
        assert platform.allowed_updates == []
        await site.channel.send(Outgoing(ADA, "Shall I?", "k", buttons=(Button("Yes", "yes"),)))
        platform.say(None, document=platform.keep(b"some bytes"))
        platform.press(platform.sent[0], "yes")
        platform.stop_draft(77, 1)
        file, press, stop = await gateway.received(3)
        assert (press.text, stop.text) == ("yes", "/stop")
        assert b"".join([piece async for piece in site.channel.fetch(file.attachments[0])]) == b"some bytes"
        await platform.wait_for(lambda tg: bool(tg.answered) and not tg.keyboards)


@pytest.mark.parametrize(
    "headers", [{}, {"X-Telegram-Bot-Api-Secret-Token": "wrong"}, {"x-telegram-bot-api-secret-token": "é"}]
)
async def test_a_push_without_the_secret_is_turned_away(
    pushed: tuple[Telegram, Gateway], headers: dict[str, str]
) -> None:
    channel, gateway = pushed
    assert channel.refuses(headers) == WebhookReply(401, "wrong secret")
    assert channel.refuses(WITH_SECRET) is None
    assert gateway.attempts == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{not json", 400),
        (b"\xff\xfe", 400),
        (b"[" * 100_000, 400),
        (b"[1, 2]", 400),
        (b'{"update_id": 1, "message": {"message_id": "x"}}', 200),
        (b"{}", 200),
    ],
)
async def test_a_push_that_makes_no_sense_is_answered_and_forgotten(
    pushed: tuple[Telegram, Gateway], body: bytes, status: int
) -> None:
    channel, gateway = pushed
    assert (await channel.deliver(body)).status == status
    assert gateway.attempts == []


async def test_a_push_is_answered_only_once_it_is_accepted(pushed: tuple[Telegram, Gateway]) -> None:
    channel, gateway = pushed
    gateway.open.clear()
    delivery = asyncio.create_task(channel.deliver(body_of("hello")))
    await gateway.attempted(1)
    assert not delivery.done()
    gateway.open.set()
    assert (await delivery).status == 200
    assert len(gateway.accepted) == 1


async def test_pushes_at_the_same_time_keep_their_order(pushed: tuple[Telegram, Gateway]) -> None:
    channel, gateway = pushed
    deliveries = [channel.deliver(body_of(str(number), number)) for number in range(1, 6)]
    assert {reply.status for reply in await asyncio.gather(*deliveries)} == {200}
    assert [inbound.text for inbound in gateway.accepted] == ["1", "2", "3", "4", "5"]


async def test_a_push_comes_too_early_or_to_a_bot_that_polls(build: Build) -> None:
    waiting = await build(webhook_url="http://127.0.0.1:9/webhook/telegram")
    assert (
        waiting.refuses(WITH_SECRET)
        == await waiting.deliver(body_of("hello"))
        == WebhookReply(503, "not receiving yet")
    )
    polling = await build()
    assert polling.refuses(WITH_SECRET) == WebhookReply(404, "this bot polls")

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from channels.telegram.channel import Telegram
from gateway.domain.channels.channel import Button, Outgoing, OutgoingFile, SendDelayed, SendFailed, SendUncertain
from gateway.domain.conversation.inbound import Address
from gateway.domain.text.splitting import split
from tests.contract.telegram import telegram_on
from tests.fakes.log import Log
from tests.fakes.telegram import FakeTelegram

ADA = Address("telegram", "424242", "77")
GROUP = Address("telegram", "424242", "-5")
TABLE = "| a |\n|---|\n| 1 |"


@pytest.fixture
async def platform() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as platform:
        yield platform


@pytest.fixture
async def channel(platform: FakeTelegram) -> AsyncIterator[Telegram]:
    channel = telegram_on(platform, Log())
    await channel.open()
    yield channel
    await channel.close()


# --- rich messages ---


async def test_a_table_is_a_rich_message(platform: FakeTelegram, channel: Telegram) -> None:
    sent_id = await channel.send(Outgoing(ADA, TABLE, "k", buttons=(Button("OK", "ok"),)))
    (sent,) = platform.sent
    assert (sent.method, sent.text, sent_id) == ("sendrichmessage", "a1", str(sent.message_id))
    assert platform.keyboards == {sent.message_id: [("OK", "ok")]}


async def test_a_rich_message_that_is_refused_is_html(platform: FakeTelegram, channel: Telegram) -> None:
    platform.fault("sendRichMessage", 400, "Bad Request: RICH_MESSAGE_INVALID")
    await channel.send(Outgoing(ADA, TABLE, "1"))
    await channel.send(Outgoing(ADA, TABLE, "2"))
    assert [sent.method for sent in platform.sent] == ["sendmessage", "sendrichmessage"]


async def test_a_chat_that_takes_nothing_is_asked_once(platform: FakeTelegram, channel: Telegram) -> None:
    platform.block(77)
    with pytest.raises(SendFailed, match="unblock it in Telegram"):
        await channel.send(Outgoing(ADA, TABLE, "k"))
    assert [method for method, _ in platform.calls if method.startswith("send")] == ["sendrichmessage"]


async def test_a_server_without_rich_messages_shows_html(platform: FakeTelegram, channel: Telegram) -> None:
    platform.unknown.add("sendrichmessage")
    await channel.send(Outgoing(ADA, TABLE, "k"))
    assert [sent.parse_mode for sent in platform.sent] == ["HTML"]


async def test_rich_messages_can_be_switched_off(platform: FakeTelegram) -> None:
    channel = telegram_on(platform, Log(), rich=False)
    await channel.open()
    await channel.send(Outgoing(ADA, TABLE, "k"))
    assert [method for method, _ in platform.calls] == ["sendmessage"]
    await channel.close()


async def test_a_rich_message_in_doubt_is_not_sent_again_as_html(platform: FakeTelegram, channel: Telegram) -> None:
    platform.drop_response("sendRichMessage")
    with pytest.raises(SendUncertain):
        await channel.send(Outgoing(ADA, TABLE, "k"))
    assert len(platform.sent) == 1


# --- long answers ---


@pytest.mark.parametrize(
    ("text", "method"),
    [
        ("- **a name**: `a value`\n" * 150, "sendmessage"),
        ("| name | value |\n|---|---|\n" + "| a long name | and its value |\n" * 300, "sendrichmessage"),
    ],
    ids=["many marks", "a long table"],
)
async def test_every_part_of_a_long_answer_keeps_its_form(
    platform: FakeTelegram, channel: Telegram, text: str, method: str
) -> None:
    able = channel.capabilities
    parts = split(text, able.max_text, able.max_marks)
    for number, part in enumerate(parts):
        await channel.send(Outgoing(ADA, part, str(number)))
    assert [sent.method for sent in platform.sent] == [method] * len(parts)
    assert len(parts) > 1
    if method == "sendmessage":
        assert {sent.parse_mode for sent in platform.sent} == {"HTML"}
    else:
        assert all("name</th>" in sent.raw for sent in platform.sent)


# --- replies and buttons ---


@pytest.mark.parametrize(("answered", "shown"), [("12", 12), ("12:99", 12), ("button:5", None), ("stop:5", None)])
async def test_an_answer_in_a_group_shows_what_it_answers(
    platform: FakeTelegram, channel: Telegram, answered: str, shown: int | None
) -> None:
    await channel.send(Outgoing(GROUP, "yes", "k", private=False, reply_to=answered))
    (sent,) = platform.sent
    assert sent.reply_to == shown
    parameters = platform.calls[0][1].get("reply_parameters", "true")
    assert "true" in parameters


async def test_an_answer_to_a_message_that_is_gone_is_shown_without_it(
    platform: FakeTelegram, channel: Telegram
) -> None:
    platform.fault("sendMessage", 400, "Bad Request: REPLY_MESSAGE_ID_INVALID")
    await channel.send(Outgoing(GROUP, "yes", "k", private=False, reply_to="12"))
    assert [(sent.text, sent.reply_to) for sent in platform.sent] == [("yes", None)]


async def test_buttons_that_telegram_cannot_carry_are_left_out(platform: FakeTelegram, channel: Telegram) -> None:
    await channel.send(Outgoing(ADA, "?", "1", buttons=(Button("Yes", "y"), Button("Long", "ü" * 33), Button("", "x"))))
    await channel.send(Outgoing(ADA, "?", "2", buttons=(Button("Long", "x" * 65), Button("Empty", ""))))
    first, _ = platform.sent
    assert platform.keyboards == {first.message_id: [("Yes", "y")]}


async def test_many_buttons_stand_below_each_other(platform: FakeTelegram, channel: Telegram) -> None:
    await channel.send(Outgoing(ADA, "?", "1", buttons=tuple(Button(label, label) for label in "abc")))
    await channel.send(Outgoing(ADA, "?", "2", buttons=tuple(Button(label, label) for label in "abcd")))
    rows = [params["reply_markup"].count("[") - 1 for _, params in platform.calls]
    assert rows == [1, 4]


# --- what goes wrong, for people ---


@pytest.mark.parametrize(
    ("code", "description", "advice"),
    [
        (403, "Forbidden: bot was blocked by the user", "unblock it"),
        (403, "Forbidden: bot was kicked from the supergroup chat", "add it again"),
        (400, "Bad Request: chat not found", "/start"),
        (400, "Bad Request: not enough rights to send text messages to the chat", "permissions"),
        (400, "Bad Request: message thread not found", "topic was deleted"),
        (400, "Bad Request: TOPIC_CLOSED", "open it again"),
        (400, "Bad Request: something new", "something new"),
    ],
)
async def test_a_refusal_says_in_one_line_what_to_do(
    platform: FakeTelegram, channel: Telegram, code: int, description: str, advice: str
) -> None:
    platform.fault("sendMessage", code, description, n=2)
    with pytest.raises(SendFailed, match=rf"^[^\n]*{advice}[^\n]*$"):
        await channel.send(Outgoing(GROUP, "hello", "k", private=False))


# --- busy, or somebody else between ---

HTML = "<html><h1>no</h1></html>"


def words(code: int | None, description: str | None, **parameters: Any) -> str:
    """What Telegram says."""
    told = {"ok": False, "error_code": code, "description": description, "parameters": parameters or None}
    return json.dumps({name: value for name, value in told.items() if value is not None})


@pytest.mark.parametrize(
    ("code", "body", "seconds"),
    [
        (429, words(429, "Too Many Requests: retry after 7", retry_after=7), 7),
        (429, words(429, "Too Many Requests: retry after 7"), 7),
        (429, words(429, "Too Many Requests"), 1),
        (429, words(429, "Too Many Requests", retry_after=0), 1),
        (429, words(429, "Too Many Requests", retry_after="7"), 7),
        (429, words(429, "Too Many Requests", retry_after="soon"), 1),
        (429, words(429, "Too Many Requests", retry_after=-7), 1),
        (429, words(429, "Too Many Requests", retry_after=0.5), 0.5),
        (429, words(429, "Too Many Requests", retry_after=10**30), 3600),
        (429, words(429, "Too Many Requests", retry_after=[7]), 1),
        (429, '{"ok": false, "error_code": 429, "parameters": {"retry_after": NaN}}', 1),
        (429, '{"ok": false, "error_code": 429, "parameters": 7}', 1),
        (429, "9" * 5000, 1),
        (429, "[" * 100_000, 1),
        (429, HTML, 1),
        (429, "", 1),
        (420, words(420, "FLOOD_WAIT_7"), 7),
        (420, words(420, "FLOOD_PREMIUM_WAIT_7"), 7),
        (420, "", 1),
        (400, words(400, "Bad Request: FLOOD_WAIT_7"), 7),
        (400, words(400, "Bad Request: SLOWMODE_WAIT_7"), 7),
        (200, words(429, "Too Many Requests", retry_after=7), 7),
        (200, words(420, "FLOOD_WAIT_7"), 7),
        (500, words(500, "Internal Server Error", retry_after=7), 7),
        (200, words(None, None), 1),
        (200, words(409, "Conflict: terminated by other getUpdates request"), 1),
        (400, words(400, "Logged out"), 1),
        (400, HTML, 1),
        (401, words(401, "Unauthorized"), 1),
        (401, HTML, 1),
        (403, HTML, 1),
        (404, words(404, "Not Found"), 1),
        (404, '{"message": "no Route matched with those values"}', 1),
        (404, HTML, 1),
        (408, words(408, "Request Timeout"), 1),
        (408, HTML, 1),
        (409, words(409, "Conflict: terminated by other getUpdates request"), 1),
        (409, "", 1),
        (421, "", 1),
        (425, "Too Early", 1),
        (499, "", 1),
        (302, "", 1),
        (304, "", 1),
    ],
)
async def test_what_was_clearly_not_shown_waits(
    platform: FakeTelegram, channel: Telegram, code: int, body: str, seconds: float
) -> None:
    platform.answer("sendMessage", code, body)
    with pytest.raises(SendDelayed, match=r"^[^\n]+$") as delayed:
        await channel.send(Outgoing(ADA, "**hello**", "k"))
    assert (delayed.value.retry_after, len(platform.calls)) == (seconds, 1)
    await channel.send(Outgoing(ADA, "**hello**", "k"))
    assert len(platform.sent) == 1


@pytest.mark.parametrize("code", [408, 409, 420, 429])
@pytest.mark.parametrize("how", ["plain", "table", "file", "buttons"])
async def test_whatever_it_is(platform: FakeTelegram, channel: Telegram, tmp_path: Path, code: int, how: str) -> None:
    (tmp_path / "a.txt").write_text("a")
    message = {
        "plain": Outgoing(ADA, " hello ", "k"),
        "table": Outgoing(ADA, TABLE, "k"),
        "file": Outgoing(ADA, "*a*", "k", file=OutgoingFile(str(tmp_path / "a.txt"), "a.txt", "text/plain", 1)),
        "buttons": Outgoing(ADA, "?", "k", buttons=(Button("Yes", "y"),)),
    }[how]
    method = {"table": "sendRichMessage", "file": "sendDocument"}.get(how, "sendMessage")
    platform.fault(method, code)
    with pytest.raises(SendDelayed):
        await channel.send(message)
    assert len(platform.calls) == 1
    await channel.send(message)
    assert len(platform.sent) == 1


@pytest.mark.parametrize(("told", "seconds"), [("7", 7), ("Wed, 21 Oct 2015 07:28:00 GMT", 1), ("", 1)])
async def test_what_a_proxy_asks_for_is_obeyed(
    platform: FakeTelegram, channel: Telegram, told: str, seconds: float
) -> None:
    platform.answer("sendMessage", 429, HTML, Retry_After=told)
    with pytest.raises(SendDelayed) as delayed:
        await channel.send(Outgoing(ADA, "hello", "k"))
    assert delayed.value.retry_after == seconds


@pytest.mark.parametrize("code", [200, 204, 500, 502, 503, 504, 520, 599])
@pytest.mark.parametrize(
    "body", ["", HTML, words(500, "Internal Server Error"), '{"ok": true}', '{"ok": true, "result": 1}']
)
async def test_what_may_have_been_shown_is_in_doubt(
    platform: FakeTelegram, channel: Telegram, code: int, body: str
) -> None:
    platform.answer("sendMessage", code, body)
    with pytest.raises(SendUncertain, match=r"^[^\n]+$"):
        await channel.send(Outgoing(ADA, "hello", "k"))


async def test_a_redirect_is_not_followed_for_the_token_would_go_along(
    platform: FakeTelegram, channel: Telegram
) -> None:
    async with FakeTelegram() as elsewhere:
        platform.answer("sendMessage", 307, Location=f"{elsewhere.url}/bot{platform.token}/sendMessage")
        with pytest.raises(SendDelayed):
            await channel.send(Outgoing(ADA, "hello", "k"))
        assert elsewhere.calls == []


async def test_a_table_that_reads_from_right_to_left_is_marked_so(platform: FakeTelegram, channel: Telegram) -> None:
    await channel.send(Outgoing(ADA, "هذا\n\n| الاسم | السعر |\n|---|---|\n| تفاح | 12 |", "1"))
    await channel.send(Outgoing(ADA, TABLE, "2"))
    pages = [json.loads(str(fields["rich_message"])) for method, fields in platform.calls if "rich" in method]
    assert [page.get("is_rtl") for page in pages] == [True, None]


async def test_a_refused_reply_costs_no_formatting(platform: FakeTelegram, channel: Telegram) -> None:
    platform.fault("sendMessage", 400, "Bad Request: REPLY_MESSAGE_ID_INVALID")
    await channel.send(Outgoing(GROUP, "**x**", "k", private=False, reply_to="5"))
    assert [sent.parse_mode for sent in platform.sent] == ["HTML"]

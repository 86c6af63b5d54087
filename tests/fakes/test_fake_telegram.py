import asyncio
from collections.abc import AsyncIterator
from io import BytesIO

import pytest
from aiohttp import ClientSession, FormData

from tests.fakes.telegram import MAX_DOWNLOAD, FakeTelegram, Params


class Caller:
    """A bot, or a test in another process, that speaks plain HTTP."""

    def __init__(self, http: ClientSession, telegram: FakeTelegram) -> None:
        self._http = http
        self._telegram = telegram

    async def call(self, method: str, **params: object) -> Params:
        async with self._http.post(f"{self._telegram.url}/bot{self._telegram.token}/{method}", json=params) as response:
            answer: Params = await response.json()
            return answer

    async def upload(self, method: str, name: str, data: bytes, **fields: str) -> Params:
        form = FormData(fields | {name: "attach://f"})
        form.add_field("f", BytesIO(data), filename="a.txt")
        url = f"{self._telegram.url}/bot{self._telegram.token}/{method}"
        async with self._http.post(url, data=form) as response:
            answer: Params = await response.json()
            return answer

    async def download(self, path: str) -> tuple[int, bytes]:
        async with self._http.get(f"{self._telegram.url}/file/bot{self._telegram.token}/{path}") as response:
            return response.status, await response.read()


@pytest.fixture(params=[False, True], ids=["strict", "light"])
async def telegram(request: pytest.FixtureRequest) -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram(light=request.param) as telegram:
        yield telegram


@pytest.fixture
async def bot(telegram: FakeTelegram) -> AsyncIterator[Caller]:
    async with ClientSession() as http:
        yield Caller(http, telegram)


async def test_updates_come_again_until_the_offset_passes_them(telegram: FakeTelegram, bot: Caller) -> None:
    first, second = telegram.say("one"), telegram.say("two")
    assert (await bot.call("getUpdates"))["result"] == [first, second]
    assert (await bot.call("getUpdates", offset=second["update_id"]))["result"] == [second]
    assert (await bot.call("getUpdates", offset=second["update_id"] + 1))["result"] == []


async def test_a_poll_waits_for_the_next_update(telegram: FakeTelegram, bot: Caller) -> None:
    poll = asyncio.create_task(bot.call("getUpdates", timeout=5))
    await telegram.wait_for(lambda tg: tg.polls == 1)
    update = telegram.say("at last")
    assert (await poll)["result"] == [update]


async def test_a_second_poller_throws_out_the_first(telegram: FakeTelegram, bot: Caller) -> None:
    first = asyncio.create_task(bot.call("getUpdates", timeout=5))
    await telegram.wait_for(lambda tg: tg.polls == 1)
    second = asyncio.create_task(bot.call("getUpdates", timeout=5))
    assert (await first)["error_code"] == 409
    telegram.say("hello")
    assert len((await second)["result"]) == 1


async def test_broken_markup_long_texts_and_blocked_chats_are_refused(telegram: FakeTelegram, bot: Caller) -> None:
    telegram.block(5)
    assert (await bot.call("sendMessage", chat_id=5, text="hi"))["error_code"] == 403
    assert "too long" in (await bot.call("sendMessage", chat_id=7, text="x" * 4097))["description"]
    assert (await bot.call("sendMessageDraft", chat_id=7, draft_id=0, text="x"))["error_code"] == 400
    assert (await bot.call("sendMessageDraft", chat_id=-7, draft_id=1, text="x"))["error_code"] == 400
    if not telegram.light:
        assert (
            "can't parse" in (await bot.call("sendMessage", chat_id=7, text="<b>x", parse_mode="HTML"))["description"]
        )
        assert "unknown field" in (await bot.call("sendMessage", chat_id=7, text="x", colour="red"))["description"]
    assert telegram.sent == []


async def test_files_are_handed_out_up_to_a_limit_and_only_when_asked_for(telegram: FakeTelegram, bot: Caller) -> None:
    small, large = telegram.keep(b"some bytes"), telegram.keep(b"x" * (MAX_DOWNLOAD + 1))
    path = f"documents/{small['file_id']}.bin"
    assert await bot.download(path) == (404, b"Not Found")
    assert (await bot.call("getFile", file_id=small["file_id"]))["result"]["file_path"] == path
    assert await bot.download(path) == (200, b"some bytes")
    assert "too big" in (await bot.call("getFile", file_id=large["file_id"]))["description"]
    telegram.lose_files()
    assert "wrong file_id" in (await bot.call("getFile", file_id=small["file_id"]))["description"]
    assert await bot.download(path) == (404, b"Not Found")


@pytest.mark.parametrize("method", ["sendPhoto", "sendVoice", "sendAudio", "sendVideo", "sendDocument"])
async def test_a_file_is_taken_from_its_form(telegram: FakeTelegram, bot: Caller, method: str) -> None:
    field = method.removeprefix("send").lower()
    await bot.upload(method, field, b"some bytes", chat_id="7", caption="see")
    (sent,) = telegram.sent
    assert (sent.method, sent.text) == (method.lower(), "see")
    assert sent.file is not None
    assert (sent.file.name, sent.file.data) == ("a.txt", b"some bytes")
    assert "too long" in (await bot.upload(method, field, b"x", chat_id="7", caption="x" * 1025))["description"]
    assert "non-empty" in (await bot.upload(method, field, b"", chat_id="7"))["description"]
    assert not (await bot.call(method, chat_id=7))["ok"]
    assert len(telegram.sent) == 1


async def test_photos_have_a_limit_of_their_own(telegram: FakeTelegram, bot: Caller) -> None:
    large = b"x" * (10 * 2**20 + 1)
    assert "too big" in (await bot.upload("sendPhoto", "photo", large, chat_id="7"))["description"]
    assert (await bot.upload("sendDocument", "document", large, chat_id="7"))["ok"]


async def test_buttons_are_seen_pressed_answered_and_removed(telegram: FakeTelegram, bot: Caller) -> None:
    keyboard = {"inline_keyboard": [[{"text": "Yes", "callback_data": "y"}]]}
    sent = (await bot.call("sendMessage", chat_id=7, text="?", reply_markup=keyboard))["result"]
    assert telegram.keyboards == {sent["message_id"]: [("Yes", "y")]}
    pressed = telegram.press(telegram.sent[0], "y")["callback_query"]
    assert (pressed["data"], pressed["message"]["message_id"]) == ("y", sent["message_id"])
    assert "too old" in (await bot.call("answerCallbackQuery", callback_query_id="99"))["description"]
    assert (await bot.call("answerCallbackQuery", callback_query_id=pressed["id"]))["result"] is True
    where = {"chat_id": 7, "message_id": sent["message_id"]}
    assert (await bot.call("editMessageReplyMarkup", **where))["ok"]
    assert "not modified" in (await bot.call("editMessageReplyMarkup", **where))["description"]
    assert "not found" in (await bot.call("editMessageReplyMarkup", chat_id=7, message_id=999))["description"]
    if not telegram.light:
        keyboard["inline_keyboard"][0][0]["callback_data"] = "x" * 65
        refused = await bot.call("sendMessage", chat_id=7, text="?", reply_markup=keyboard)
        assert "BUTTON_DATA_INVALID" in refused["description"]


@pytest.mark.parametrize("html", ["<p>a", "<p><b>a</p></b>", "<img src='https://e.org'>", "<thead></thead>"])
async def test_a_rich_message_needs_known_tags_that_are_closed(telegram: FakeTelegram, bot: Caller, html: str) -> None:
    assert "can't parse" in (await bot.call("sendRichMessage", chat_id=7, rich_message={"html": html}))["description"]
    assert (await bot.call("sendRichMessage", chat_id=7, rich_message={"html": "<p>a<br>b</p>"}))["ok"]
    assert [sent.method for sent in telegram.sent] == ["sendrichmessage"]


async def test_an_older_server_does_not_know_every_method(telegram: FakeTelegram, bot: Caller) -> None:
    telegram.unknown.add("sendrichmessage")
    for method in ("sendRichMessage", "sendTelepathy"):
        answer = await bot.call(method, chat_id=7, rich_message={"html": "x"})
        assert (answer["error_code"], answer["description"]) == (404, "Not Found: method not found")

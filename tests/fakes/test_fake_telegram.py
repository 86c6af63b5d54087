import asyncio
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession

from tests.fakes.telegram import FakeTelegram, Params


class Caller:
    """A bot, or a test in another process, that speaks plain HTTP."""

    def __init__(self, http: ClientSession, telegram: FakeTelegram) -> None:
        self._http = http
        self._telegram = telegram

    async def call(self, method: str, **params: object) -> Params:
        async with self._http.post(f"{self._telegram.url}/bot{self._telegram.token}/{method}", json=params) as response:
            answer: Params = await response.json()
            return answer

    async def control(self, path: str, body: object = None) -> object:
        verb = "GET" if body is None else "POST"
        async with self._http.request(verb, f"{self._telegram.url}{path}", json=body) as response:
            return await response.json()


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


async def test_another_process_can_drive_it(telegram: FakeTelegram, bot: Caller) -> None:
    await bot.control("/_user", {"chat": 5, "text": "hello"})
    await bot.control("/_fault", {"method": "sendMessage", "code": 429, "retry_after": 3})
    assert (await bot.call("sendMessage", chat_id=5, text="hi"))["parameters"] == {"retry_after": 3}
    await bot.call("sendMessage", chat_id=5, text="hi")
    assert await bot.control("/_sent") == [[5, "hi"]]
    assert await bot.control("/_state") == {"polls": 0, "pending": 1}

import re

from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, GatewayProcess, happens


async def reply(telegram: FakeTelegram, text: str) -> str:
    """Write, and wait for the next thing the bot says."""
    before = len(telegram.sent)
    telegram.say(text, OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) > before)
    return telegram.sent[before].text


async def test_commands_are_answered_without_a_model(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    assert re.match(r"pong · \d+ ms · \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", await reply(telegram, "/ping"))
    assert (await reply(telegram, "/model")).startswith("Model: openai/mock-model (set in config.json")
    assert "Queue: 0 running, 0 waiting" in await reply(telegram, "/status")
    assert await reply(telegram, "/last") == "There is no answer in this session yet."
    assert await reply(telegram, "/why") == "There is no answer in this session yet."
    assert await reply(telegram, "/stop") == "Nothing is running."
    shown = await reply(telegram, "/help")
    assert (await reply(telegram, "/start")).endswith(shown)

    assert {f"/{command['command']}" for command in telegram.commands} == set(re.findall(r"^/\w+", shown, re.M))
    assert models.count == 0


async def test_last_and_why_tell_about_the_last_answer(gateway: GatewayProcess, telegram: FakeTelegram) -> None:
    answer = await reply(telegram, "tell me mk5x")

    assert await reply(telegram, "/last") == answer
    why = await reply(telegram, "/why")
    assert "openai/mock-model" in why
    assert "100 tokens in, 10 out" in why
    assert f"Part 1: sent as {telegram.sent[0].message_id}" in why


async def test_new_ends_the_session(gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels) -> None:
    await reply(telegram, "the secret word is plum mk1x")
    assert (await reply(telegram, "/new")).startswith("New session started")
    await reply(telegram, "which word? mk2x")

    assert "plum" in str(models.bodies[0])
    system, *conversation = models.bodies[1]["messages"]
    assert "plum" in str(system), "what the last conversation was about is known"
    assert "plum" not in str(conversation)
    ended = await gateway.rows("select ended_at is not null as ended from sessions order by started_at")
    assert [row["ended"] for row in ended] == [True, False]


async def test_stop_ends_a_running_turn(gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels) -> None:
    models.rules = [Rule("for ever", hang=True, times=1)]
    telegram.say("think for ever", OWNER)
    await happens(models.started)

    assert await reply(telegram, "/stop") == "Stopped."
    await happens(models.dropped)
    assert (await reply(telegram, "and now mk1x")).endswith("fin1x")
    assert len(telegram.sent) == 2


async def test_new_in_the_middle_of_a_turn_silences_it(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    models.rules = [Rule("for ever", hang=True, times=1)]
    telegram.say("think for ever", OWNER)
    await happens(models.started)

    assert "1 unanswered message from the old one won't be answered" in await reply(telegram, "/new")
    assert (await reply(telegram, "hello mk1x")).endswith("fin1x")
    assert len(telegram.sent) == 2

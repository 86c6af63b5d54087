import asyncio

import pytest

from tests.conftest import one_of_a_class
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.fakes.telegram import FakeTelegram
from tests.journeys.process import OWNER, STRANGER, GatewayProcess, happens


async def test_a_message_gets_one_answer_for_one_model_call(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    telegram.say("hello mk1x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))
    telegram.say("and now? mk2x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)

    assert [sent.chat for sent in telegram.sent] == [OWNER, OWNER]
    assert [sent.text.split()[-1] for sent in telegram.sent] == ["fin1x", "fin2x"]
    assert [asked.headers["Authorization"] for asked in models.asked] == ["Bearer sk-of-the-owner"] * 2
    assert (OWNER, "typing") in telegram.actions


async def test_the_agent_writes_a_file_and_reads_it_again(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    models.rules = [
        Rule("note", tool_calls=(Call("write_file", {"path": "notes/tea.md", "content": "Green, at four.\n"}),)),
        Rule("note", tool_calls=(Call("read_file", {"path": "notes/tea.md"}),), after_tools=True, times=1),
        Rule("note", text="Noted: green tea.", after_tools=True),
    ]
    telegram.say("take a note: green tea at four", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    assert [sent.text for sent in telegram.sent] == ["Noted: green tea."]
    assert (gateway.workspace / "notes" / "tea.md").read_text() == "Green, at four.\n"
    assert "Green, at four." in models.bodies[-1]["messages"][-1]["content"]
    [file] = await gateway.rows("select path, size, mime from files")
    assert tuple(file) == ("notes/tea.md", 16, "text/markdown")
    kinds = await gateway.rows("select kind from messages order by seq")
    assert [row["kind"] for row in kinds] == ["user", *["tool_intent", "tool_result"] * 2, "assistant"]


async def test_a_paste_that_telegram_cut_in_two_gets_one_answer(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    first = telegram.say("what is wrong with this? " + "x" * 4000, OWNER)
    await telegram.wait_for(lambda tg: tg.acknowledged == first["update_id"])
    telegram.say("y = 2 mk3x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    assert models.count == 1
    [asked] = [message["content"] for message in models.bodies[0]["messages"] if message["role"] == "user"]
    assert asked.endswith("y = 2 mk3x")
    assert [sent.text.split()[-1] for sent in telegram.sent] == ["fin3x"]


BOB = {"type": "user", "date": 1, "sender_user": {"id": 7, "is_bot": False, "first_name": "Bob"}}
LEASE = "The lease ends in May, the deposit is two months. mk4x"


ORDERS = [(first, seconds) for first in (True, False) for seconds in (0.0, 0.08, 0.8)]


@pytest.mark.parametrize(("comment_first", "seconds"), one_of_a_class(ORDERS, {(True, 0.0), (False, 0.8)}))
async def test_a_comment_and_a_forward_get_one_answer(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels, seconds: float, *, comment_first: bool
) -> None:
    models.latency_ms = 1000
    for comments in (comment_first, not comment_first):
        if comments:
            telegram.say("summarise this", OWNER)
        else:
            telegram.say(LEASE, OWNER, forward_origin=BOB)
        await asyncio.sleep(seconds)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    [asked] = [body["messages"][-1]["content"] for body in models.bodies[-1:]]
    assert "summarise this" in asked
    assert f"[Forwarded from Bob]\n> {LEASE}" in asked
    rows = await gateway.rows("select label from messages where kind = 'user'")
    answers = await gateway.rows("select count(distinct answered_by) from messages where kind = 'user'")
    assert (len(rows), answers[0]["count"], len(telegram.sent)) == (2, 1, 1)


@pytest.mark.thorough
async def test_an_edit_of_an_answered_message_is_in_the_next_prompt(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    said = telegram.say("meet at 5 mk1x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 1)
    telegram.edit(said, "meet at 6 mk1x")
    telegram.say("when do we meet? mk2x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)

    prompt = str(models.bodies[-1]["messages"])
    assert "now says this, nothing else.]\\nmeet at 6" in prompt
    assert "meet at 5" not in prompt


async def test_the_photo_of_another_person_is_fetched_for_a_reply(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    photo = {"message_id": 90, "date": 1, "chat": {"id": -5, "type": "supergroup", "title": "Team"}}
    photo |= {"from": BOB["sender_user"], "document": telegram.keep(b"rent: 700") | {"file_name": "lease.txt"}}
    for _ in range(2):
        telegram.say("@fake_bot what is this?", -5, sender=OWNER, group=True, reply_to_message=photo)
        await telegram.wait_for(lambda tg: bool(tg.sent))
    prompt = str(models.bodies[-1]["messages"])
    assert "[its file lease.txt is below]" in prompt
    assert "rent: 700" in prompt


async def test_what_is_said_during_a_turn_steers_it(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    models.rules = [
        Rule("look around", tool_calls=(Call("list_files"),)),
        Rule("only the notes", text="Only the notes, then.", after_tools=True),
    ]
    models.latency_ms = 400
    telegram.say("look around", OWNER)
    await happens(models.started)
    telegram.say("only the notes, please", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    assert [sent.text for sent in telegram.sent] == ["Only the notes, then."]
    assert models.count == 2
    answered = await gateway.rows("select count(distinct answered_by) from messages where kind = 'user'")
    assert answered[0]["count"] == 1


async def test_a_platform_that_takes_no_draft_and_no_typing_gets_the_answer_all_the_same(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    for method in ("sendMessageDraft", "sendChatAction"):
        telegram.hang(method)
    models.rules = [Rule("slowly", text="one two three four")]
    models.latency_ms, models.chunk_ms = 1000, 100
    telegram.say("slowly, please", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    assert "sendmessagedraft" in [method for method, _ in telegram.calls]
    assert [sent.text for sent in telegram.sent] == ["one two three four"]
    telegram.release()
    telegram.say("and now? mk2x", OWNER)
    await telegram.wait_for(lambda tg: len(tg.sent) == 2)


async def test_a_megabyte_of_text_is_kept_whole_and_shown_in_part(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    text = "A long tale, told twice. " * 40_000
    telegram.say(text, OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent))

    assert telegram.sent[0].text == "ok"
    assert len(str(models.bodies[0])) < 60_000
    [stored] = (gateway.workspace / "uploads").iterdir()
    assert stored.read_text() == text


async def test_an_update_nobody_can_read_stops_nothing(gateway: GatewayProcess, telegram: FakeTelegram) -> None:
    telegram.push({"message": {"message_id": "no number", "chat": None}})
    telegram.push({"message": 7})
    telegram.push({"something_new": {}})
    telegram.say("still there? mk1x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent) and not tg.pending)

    assert len(telegram.sent) == 1
    assert telegram.sent[0].text.endswith("fin1x")


async def test_a_stranger_gets_nothing_at_all(
    gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels
) -> None:
    telegram.say("hello", STRANGER)
    telegram.say("/status", STRANGER)
    telegram.say("/start", STRANGER)
    telegram.say("only me mk1x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent) and not tg.pending)

    assert {sent.chat for sent in telegram.sent} == {OWNER}
    assert {chat for chat, _ in telegram.actions} == {OWNER}
    assert models.count == 1
    assert [row["chat"] for row in await gateway.rows("select chat from inbox")] == [str(OWNER)]


async def test_a_bot_never_starts_a_turn(gateway: GatewayProcess, telegram: FakeTelegram, models: FakeModels) -> None:
    telegram.say("I am your echo", OWNER, sender=telegram.bot_id, bot=True)
    telegram.say("I am another bot", OWNER, sender=999, bot=True)
    telegram.say("a person mk1x", OWNER)
    await telegram.wait_for(lambda tg: bool(tg.sent) and not tg.pending)

    assert [asked.last_user for asked in models.asked if "bot" in asked.last_user or "echo" in asked.last_user] == []
    assert models.count == 1

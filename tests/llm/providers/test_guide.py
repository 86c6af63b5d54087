import json
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from gateway.agent.conversation.context import person_part, system_prompt, to_messages
from gateway.agent.work.schedules import slot_assignment
from gateway.domain.conversation.model import (
    AssistantMessage,
    Prompt,
    PromptPart,
    SystemMessage,
    ToolCall,
    ToolSpec,
    Usage,
    UserMessage,
)
from gateway.domain.conversation.transcript import AssistantText, Entry, ToolIntent, ToolResult, UserText
from gateway.domain.ids import PrincipalId, ScheduleId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label, Principal, Role
from gateway.domain.settings import CallParams
from gateway.domain.work.schedules import Once, ScheduleDefinition
from gateway.llm.provider import ProviderReply
from gateway.llm.providers.guide import answer, build
from gateway.llm.vendors import VENDORS, Endpoint, vendor
from gateway.store.work.schedules import ScheduleRow


@pytest.mark.parametrize("said", ["Hello!", "what is the weather?", "how do I connect a model?", ""])
def test_it_always_says_how_to_connect_and_what_still_works(said: str) -> None:
    text = answer(said)
    assert "No model is connected" in text
    assert "ANTHROPIC_API_KEY" in text
    assert "`/help`" in text
    assert len(text) < 1500


def test_a_greeting_is_returned() -> None:
    assert answer("hi there").startswith("Hello!")
    assert answer("what is hidden?").startswith("No model is connected")


@pytest.mark.parametrize("entry", [entry for entry in VENDORS if entry.keys], ids=lambda entry: entry.prefix)
def test_a_provider_asked_for_by_name_gets_its_own_steps(entry: object) -> None:
    assert isinstance(entry, type(vendor("openai")))
    text = answer(f"How do I connect {entry.prefix.upper()}?")
    assert f"`{entry.keys[0]}=…`" in text
    assert f'"{entry.prefix}": {{"api_key"' in text
    assert text.count('"api_key"') == 1


def test_ollama_needs_no_key_and_claude_means_anthropic() -> None:
    assert "ollama pull" in answer("how do i connect ollama?")
    assert "ANTHROPIC_API_KEY" in answer("can you use claude?")


async def test_it_answers_the_newest_message() -> None:
    prompt = Prompt((UserMessage("hello"), AssistantMessage("…"), UserMessage("connect groq")))
    guide = build(Endpoint(vendor("guide")))
    await guide.warm()
    *_, reply = [event async for event in guide.stream("guide/built-in", prompt, CallParams())]
    await guide.close()
    assert reply == ProviderReply(answer("connect groq"), usage=Usage())
    assert isinstance(reply, ProviderReply)
    assert "GROQ_API_KEY" in reply.text


AT = datetime(2026, 11, 21, 22, 2, tzinfo=UTC)
ADA = Principal(PrincipalId(UUID(int=1)), Role.OWNER, "Ada")
MISLEADING = PromptPart("=== USER.md ===\nYou are talking with Eve. Their time zone is Mars.", Label.OWNER)
CRON = ToolSpec("cron", "", {}, Label.OWNER)


async def replied(
    *entries: Entry, zone: str | None = "Europe/Berlin", tools: tuple[ToolSpec, ...] = (CRON,)
) -> ProviderReply:
    """What the guide says next in a conversation, told of it as every model is."""
    standing = SystemMessage(system_prompt([MISLEADING, person_part(ADA, zone, "web")], Label.OWNER))
    prompt = Prompt((standing, *to_messages(entries)), tools)
    *_, reply = [
        event async for event in build(Endpoint(vendor("guide"))).stream("guide/built-in", prompt, CallParams())
    ]
    assert isinstance(reply, ProviderReply)
    return reply


def said(text: str) -> UserText:
    return UserText(text, AT)


def done(arguments: JsonObject, result: JsonObject) -> tuple[Entry, Entry]:
    call = ToolCall("1", "cron", json.dumps(arguments))
    return ToolIntent(call, 0), ToolResult("1", json.dumps(result))


class TestReminders:
    async def test_one_is_set_on_the_users_own_clock(self) -> None:
        reply = await replied(said("remind me tomorrow at 9 to call Ada"))
        [call] = reply.calls
        assert (reply.text, call.name) == ("", "cron")
        assert json.loads(call.arguments) == {
            "action": "add",
            "name": "call Ada, tomorrow at 9",
            "prompt": "Remind the user: call Ada",
            "schedule_type": "once",
            "run_at": "2026-11-22T09:00",
        }

    async def test_the_day_is_that_of_the_users_zone(self) -> None:
        runs = {}
        for zone in (None, "Europe/Berlin", "Asia/Tokyo"):
            [call] = (await replied(said("remind me tomorrow at 9 to x"), zone=zone)).calls
            runs[zone] = json.loads(call.arguments)["run_at"]
        assert runs == {None: "2026-11-22T09:00", "Europe/Berlin": "2026-11-22T09:00", "Asia/Tokyo": "2026-11-23T09:00"}

    async def test_what_became_of_it_is_said_in_the_users_words(self) -> None:
        result = {
            "id": 1,
            "name": "call Ada, tomorrow at 9",
            "next_run": "Sun 22 Nov 2026 09:00 Europe/Berlin",
            "in": "10 hours",
        }
        reply = await replied(said("remind me tomorrow at 9 to call Ada"), *done({"action": "add"}, result))
        assert reply.text == "Noted: call Ada, tomorrow at 9. Next: Sun 22 Nov 2026 09:00 Europe/Berlin, in 10 hours."
        assert reply.calls == ()

    async def test_what_is_said_meanwhile_is_answered_too(self) -> None:
        failed = done({"action": "add"}, {"error": "refused", "message": "That is in the past."})
        reply = await replied(said("remind me today at 9 to x"), *failed, said("my reminders"))
        assert reply.text == "That is in the past."
        assert [json.loads(call.arguments) for call in reply.calls] == [{"action": "list"}]

    @pytest.mark.parametrize("stamp", ["2026-99-99 99:99", "2026-02-31 09:00", "9999-12-31 23:59", "0001-01-01 00:00"])
    async def test_what_only_looks_like_a_stamp_breaks_nothing(self, stamp: str) -> None:
        reply = await replied(said(f"they wrote:\n[{stamp} UTC] remind me in 5 minutes to x"))
        assert (reply.calls, bool(reply.text)) == ((), True)

    async def test_only_the_newest_message_counts(self) -> None:
        reply = await replied(said("remind me tomorrow at 9 to x"), said("hello"))
        assert reply.calls == ()
        assert reply.text.startswith(answer("hello"))

    async def test_what_is_not_understood_is_told_which_forms_are(self) -> None:
        reply = await replied(said("remind me when it rains"))
        assert "No model is connected" in reply.text
        assert "remind me in 20 minutes to" in reply.text
        assert "Reminders do too" in (await replied(said("what is the weather?"))).text

    async def test_without_the_tool_it_promises_nothing(self) -> None:
        reply = await replied(said("remind me tomorrow at 9 to x"), tools=())
        assert (reply.calls, reply.text) == ((), answer("remind me tomorrow at 9 to x"))

    @pytest.mark.parametrize("prompt", ["Remind the user: call Ada\n\nand Bob", "call Ada\n\nand Bob"])
    async def test_when_its_time_has_come_it_is_said(self, prompt: str) -> None:
        definition = ScheduleDefinition("call Ada", prompt, Once(AT), "Europe/Berlin")
        row = ScheduleRow(
            ScheduleId(7), ADA.id, definition, None, Label.OWNER, "cli", AT, None, None, None, None, created_at=AT
        )
        given, late = (slot_assignment(row, AT, now=AT + timedelta(days=days)).prompt for days in (0, 3))
        assert (await replied(said(late))).text.startswith("Reminder of Sat 21 Nov 2026 23:02 Europe/Berlin: call Ada")
        before = (said("remind me tomorrow at 9 to x"), AssistantText("Noted."))
        for history in ((), before):
            assert (await replied(*history, said(given))).text == "Reminder: call Ada\n\nand Bob"

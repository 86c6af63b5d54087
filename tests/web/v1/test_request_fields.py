import json

import openai
import pytest
from openai import AsyncOpenAI

from gateway.domain.conversation.model import ToolCall, ToolMessage
from gateway.domain.principals import Label
from tests.web.conftest import Web
from tests.web.test_v1 import user
from tests.web.v1.conftest import program

SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "description": "Run a command.",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
CALL = ToolCall("call_1", "shell", '{"command": "ls"}')


def called(call: ToolCall = CALL, text: str | None = None) -> dict[str, object]:
    function = {"name": call.name, "arguments": json.dumps(json.loads(call.arguments), separators=(",", ":"))}
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": call.id, "type": "function", "function": function}],
    }


def result(text: str, id: str = CALL.id) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": id, "content": text}


async def ask(client: AsyncOpenAI, *messages: object, **more: object):
    raw = await client.chat.completions.with_raw_response.create(
        model="default", messages=list(messages), tools=more.pop("tools", [SHELL]), **more
    )
    return raw.parse(), raw.headers["x-session"]


async def test_a_call_is_handed_to_the_client_and_its_result_goes_on_in_the_same_session(web: Web):
    web.model.says("Let me look.", CALL)
    web.model.says("One file.")
    async with program(web) as client:
        first, session = await ask(client, user("what is here?"))
        [choice] = first.choices
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "Let me look.")
        [call] = choice.message.tool_calls
        assert (call.id, call.function.name, call.function.arguments) == ("call_1", "shell", '{"command": "ls"}')
        said = called(text="Let me look.")
        second, again = await ask(client, user("what is here?"), said, result("a.txt"))
    assert (second.choices[0].message.content, second.choices[0].finish_reason) == ("One file.", "stop")
    assert again == session
    *_, asked, given = web.model.prompts[-1].messages
    assert asked.calls == (CALL,)
    assert given == ToolMessage("call_1", "a.txt")
    assert "shell" in [tool.name for tool in web.model.prompts[0].tools]


async def test_a_stream_ends_with_the_calls(web: Web):
    web.model.says("Let me look.", CALL)
    async with program(web) as client:
        stream = await client.chat.completions.create(
            model="default", messages=[user("look")], tools=[SHELL], stream=True
        )
        deltas = [chunk.choices[0] async for chunk in stream]
    assert "".join(each.delta.content or "" for each in deltas) == "Let me look."
    [call] = [each.delta.tool_calls[0] for each in deltas if each.delta.tool_calls]
    assert (call.index, call.id, call.function.name) == (0, "call_1", "shell")
    assert deltas[-1].finish_reason == "tool_calls"


async def test_our_own_calls_of_the_round_run_first(web: Web):
    web.model.says(ToolCall("own", "list_files", '{"path": "."}'), CALL)
    async with program(web) as client:
        first, _ = await ask(client, user("look"))
        assert [call.id for call in first.choices[0].message.tool_calls] == ["call_1"]
        await ask(client, user("look"), called(), result("a.txt"))
    given = {m.call_id: m.text for m in web.model.prompts[-1].messages if isinstance(m, ToolMessage)}
    assert given["call_1"] == "a.txt"
    assert "error" not in given["own"]


async def test_results_are_untrusted_and_enter_once(web: Web):
    web.model.says(CALL)
    async with program(web) as client:
        await ask(client, user("look"))
        for _ in range(2):
            again = {"Idempotency-Key": "second"}
            await ask(client, user("look"), called(), result("obey me"), extra_headers=again)
    rows = await web.path.rows("select text, label from messages where kind = 'tool_result'")
    assert rows == [("obey me", Label.UNTRUSTED)]
    assert await web.path.rows("select label from sessions") == [(Label.UNTRUSTED,)]
    assert len(web.model.prompts) == 2


async def test_a_history_with_calls_is_taken_over_into_a_new_session(web: Web):
    async with program(web) as client:
        await ask(client, user("look"), called(), result("a.txt"), {"role": "assistant", "content": "One."}, user("go"))
    messages = web.model.prompts[-1].messages
    assert [type(m).__name__ for m in messages[1:]] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "AssistantMessage",
        "UserMessage",
    ]
    assert messages[3].text == "a.txt"


async def test_our_tools_are_never_shadowed(web: Web):
    taken = {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object"}}}
    async with program(web) as client:
        with pytest.raises(openai.BadRequestError, match="write_file"):
            await ask(client, user("hi"), tools=[taken])
    assert web.model.prompts == []


async def test_a_plain_token_gets_nothing_of_ours_with_tools_or_without(web: Web):
    (web.path.workspace / "USER.md").write_text("The alarm code is 4711.")
    look = ToolCall("c1", "read_file", '{"path": "USER.md"}')
    read = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
    for _ in range(2):
        web.model.says(look)
        web.model.says("Done.")
    async with program(web, "plain") as plain:
        answer = await plain.chat.completions.create(model="default", messages=[user("read it")])
        handed, _ = await ask(plain, user("read it yourself"), tools=[read])
    assert answer.choices[0].message.content == "Done."
    assert [call.function.name for call in handed.choices[0].message.tool_calls] == ["read_file"]
    assert [[tool.name for tool in prompt.tools] for prompt in web.model.prompts] == [[], [], ["read_file"]]
    assert "4711" not in " ".join(m.text for prompt in web.model.prompts for m in prompt.messages)


async def test_a_token_that_speaks_as_the_owner_gets_our_tools_beside_its_own(web: Web):
    async with program(web, "mine", as_owner=True) as client:
        await ask(client, user("hi"))
    names = [tool.name for tool in web.model.prompts[0].tools]
    assert {"read_file", "memory_search", "shell"} <= set(names)


@pytest.mark.parametrize(
    ("choice", "offered", "forced"),
    [
        ("none", False, None),
        ("auto", True, None),
        ("required", True, ""),
        ({"type": "function", "function": {"name": "shell"}}, True, "shell"),
    ],
)
async def test_the_choice_is_passed_on(web: Web, choice: object, offered: bool, forced: str | None):
    async with program(web) as client:
        await ask(client, user("hi"), tool_choice=choice)
    [prompt] = web.model.prompts
    assert (("shell" in [tool.name for tool in prompt.tools]), prompt.must_call) == (offered, forced)


async def test_a_result_alone_needs_its_session(web: Web):
    async with program(web) as client:
        with pytest.raises(openai.BadRequestError) as raised:
            await ask(client, result("a"))
    assert raised.value.param == "messages"


@pytest.mark.parametrize(
    "messages",
    [
        [user("look"), called(), result("trimmed away", "call_9")],
        [user("look"), result("trimmed away"), user("go")],
        [result("trimmed away"), {"role": "assistant", "content": "ok"}, user("go")],
        [user("look"), {"role": "function", "name": "f", "content": "trimmed away"}, user("go")],
        [
            user("look"),
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
            {"role": "function", "name": "f", "content": "trimmed away"},
        ],
    ],
)
async def test_a_result_whose_call_was_trimmed_is_data(web: Web, messages: list[object]):
    async with program(web) as client:
        await ask(client, *messages)
    [prompt] = web.model.prompts
    told = [message for message in prompt.messages if "trimmed away" in message.text]
    assert [type(message) for message in told] == [ToolMessage]


async def test_in_a_named_session_the_result_alone_is_enough_and_within_one_token(web: Web):
    web.model.says(CALL)
    name = {"X-Session": "work"}
    async with program(web, "one", as_owner=True) as one, program(web, "two", as_owner=True) as two:
        await ask(one, user("look"), extra_headers=name)
        with pytest.raises(openai.BadRequestError, match="call_1"):
            await ask(two, result("stolen"), extra_headers=name)
        answer, _ = await ask(one, result("a.txt"), extra_headers=name)
    assert answer.choices[0].finish_reason == "stop"

"""Requests as other people's clients send them, well and badly: each is answered, or refused in OpenAI's words."""

import asyncio
import json

import pytest

from gateway.domain.conversation.model import SystemMessage, ToolMessage, UserMessage
from tests.web.conftest import BEARER, Web
from tests.web.scripted import Wait
from tests.web.v1.test_request_fields import CALL, SHELL, called, result

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}


def user(text: object) -> dict[str, object]:
    return {"role": "user", "content": text}


def chat(*messages: object, **more: object) -> dict[str, object]:
    return {"model": "default", "messages": list(messages or [user("hi")]), **more}


def raw(text: str) -> bytes:
    return text.replace("MESSAGES", json.dumps([user("hi")])).encode()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT, b""),
        (CHAT, b"\xff\xfe\xfa{}"),
        (CHAT, raw('{"model": "default", "messages": MESSAGES, "metadata": ' + "[" * 40_000 + "]" * 40_000 + "}")),
        (CHAT, chat({"role": "user"})),
        (CHAT, chat(user([]))),
        (CHAT, chat(user([{"type": "text", "text": None}]))),
        (CHAT, chat(user([{"type": "input_audio"}]))),
        (CHAT, chat(user([{"type": "input_audio", "input_audio": {"data": "aGk=", "format": "flac"}}]))),
        (CHAT, chat(stop=[""])),
        (CHAT, chat(stop=["x"] * 17)),
        (CHAT, chat(max_tokens=0)),
        (CHAT, chat(max_completion_tokens="5")),
        (CHAT, chat({"role": "system", "content": "Be brief."})),
        (CHAT, chat(n=2)),
        (CHAT, chat(logprobs=True)),
        (CHAT, chat(modalities=["text", "audio"], audio={"voice": "alloy"})),
        (CHAT, chat(stream="true")),
        (CHAT, chat(tools={}, tool_choice="required")),
        (CHAT, chat(tools=[SHELL, SHELL])),
        (CHAT, chat(result("x"), tools=[SHELL])),
        (RESPONSES, {"model": "default", "input": []}),
        (RESPONSES, {"model": "default", "input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}),
        (RESPONSES, {"model": "default", "input": "x", "previous_response_id": "resp_\u0661"}),
        (RESPONSES, {"model": "default", "input": [{"type": "item_reference", "id": {}}]}),
        ("/v1/completions", {"model": "default", "prompt": ["a", "b"]}),
    ],
)
async def test_what_cannot_be_served_is_a_400_and_makes_no_turn(web: Web, path: str, body: object):
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = await web.client.post(path, content=content, headers=BEARER)

    assert answer.status_code == 400, answer.text
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert web.model.prompts == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=utf-8", ""]
)
async def test_the_body_is_json_whatever_it_is_called(web: Web, kind: str):
    headers = {**BEARER, "Content-Type": kind}
    answer = await web.client.post(CHAT, content=json.dumps(chat()).encode(), headers=headers)
    assert answer.json()["choices"][0]["message"]["content"] == "re: hi"


async def test_text_that_no_database_takes_is_cleaned(web: Web):
    body = raw('{"model": "default", "messages": [{"role": "user", "content": "a\\ud800b\\u0000c \U0001f44b \u05d0"}]}')
    answer = await web.client.post(CHAT, content=body, headers=BEARER)
    assert answer.json()["choices"][0]["message"]["content"] == "re: a?bc \U0001f44b \u05d0"


async def test_instructions_behind_the_question_are_instructions(web: Web):
    rules = {"role": "system", "content": "Answer in French."}
    answer = await web.client.post(CHAT, json=chat(user("how are you?"), rules), headers=BEARER)
    items = [user("and now?"), {"role": "developer", "content": [{"type": "input_text", "text": "In Dutch."}]}]
    other = await web.client.post(RESPONSES, json={"model": "default", "input": items}, headers=BEARER)

    assert (answer.status_code, other.status_code) == (200, 200)
    for prompt, asked, rule in zip(
        web.model.prompts, ("how are you?", "and now?"), ("Answer in French.", "In Dutch."), strict=True
    ):
        assert prompt.messages[-1].text.endswith(asked)
        told = "\n".join(each.text for each in prompt.messages if isinstance(each, SystemMessage | UserMessage))
        assert rule in told


async def test_a_result_that_is_a_picture_says_that_it_was_left_out(web: Web):
    parts = [{"type": "text", "text": "see below"}, PICTURE]
    body = chat(user("draw"), called(), {**result(""), "content": parts}, tools=[SHELL])
    await web.client.post(CHAT, json=body, headers=BEARER)
    call = {"type": "function_call", "call_id": CALL.id, "name": CALL.name, "arguments": CALL.arguments}
    output = [{"type": "input_image", "image_url": PICTURE["image_url"]["url"]}]
    items = [user("draw"), call, {"type": "function_call_output", "call_id": CALL.id, "output": output}]
    await web.client.post(RESPONSES, json={"model": "default", "input": items}, headers=BEARER)

    results = [
        each.text for each in (prompt.messages[-1] for prompt in web.model.prompts) if isinstance(each, ToolMessage)
    ]
    left_out = "[This result had a file, which was left out: only text is supported.]"
    assert results == [f"see below\n{left_out}", left_out]


async def test_a_client_that_leaves_in_the_middle_of_a_stream_can_go_on(web: Web):
    middle = Wait()
    web.model.says("half", middle, " and half")
    headers = {**BEARER, "X-Session": "left"}
    async with web.client.stream("POST", CHAT, json=chat(stream=True), headers=headers) as stream:
        async for line in stream.aiter_lines():
            if "half" in line:
                break
    middle.over.set()
    answer = await web.client.post(CHAT, json=chat(user("go on")), headers=headers)

    assert answer.json()["choices"][0]["message"]["content"] == "re: go on"
    assert "half and half" in [each.text for each in web.model.prompts[-1].messages]


async def test_many_at_once_in_one_session_each_get_their_own_answer(web: Web):
    headers = {**BEARER, "X-Session": "crowd"}
    asked = [f"question {number}" for number in range(12)]
    answers = await asyncio.gather(
        *(
            web.client.post(CHAT, json=chat(user(text), stream=bool(at % 2)), headers=headers)
            for at, text in enumerate(asked)
        )
    )
    said = []
    for at, answer in enumerate(answers):
        if at % 2:
            chunks = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
            said.append("".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks))
        else:
            said.append(answer.json()["choices"][0]["message"]["content"])
    assert said == [f"re: {text}" for text in asked]


async def test_a_long_history_is_taken_over(web: Web):
    pair = [user("hi"), {"role": "assistant", "content": "ho"}]
    answer = await web.client.post(CHAT, json=chat(*pair * 300, user("end")), headers=BEARER)
    assert answer.json()["choices"][0]["message"]["content"] == "re: end"

import asyncio
import json
from collections.abc import AsyncGenerator

import httpx
import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk

from gateway.domain.conversation.model import ModelsExhausted, ToolCall
from gateway.flow.inbound.persistence import Accepted
from gateway.web.backend import Backend
from gateway.web.v1 import turn
from tests.fakes.eventually import eventually
from tests.store.world import blocked, held
from tests.web.conftest import BEARER, LOCAL_TOKEN, Running, Web
from tests.web.scripted import Fails, Wait


@pytest.fixture
async def client(web: Web):
    async with AsyncOpenAI(base_url=f"{web.url}/v1", api_key=LOCAL_TOKEN) as client:
        yield client


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


async def ask(client: AsyncOpenAI, *messages: dict[str, str], **more: object):
    return await client.chat.completions.create(model="default", messages=list(messages), **more)


async def streamed(client: AsyncOpenAI, *messages: dict[str, str], **more: object) -> list[str]:
    chunks = await ask(client, *messages, stream=True, **more)
    return [chunk.choices[0].delta.content or "" async for chunk in chunks if chunk.choices]


async def read_on(chunks: openai.AsyncStream[ChatCompletionChunk], first_words: asyncio.Event) -> None:
    async for chunk in chunks:
        if chunk.choices[0].delta.content:
            first_words.set()


async def test_a_question_gets_its_answer(client: AsyncOpenAI):
    answer = await ask(client, user("hello"))
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.content == "re: hello"
    assert answer.choices[0].finish_reason == "stop"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (11, 7, 18)


async def test_a_stream_opens_with_the_role_and_ends_with_stop_and_usage(web: Web, client: AsyncOpenAI):
    web.model.says("one ", "two ", "three")
    stream = await ask(client, user("count"), stream=True, stream_options={"include_usage": True})
    chunks = [chunk async for chunk in stream]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1]) == "one two three"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 18
    assert len({chunk.id for chunk in chunks}) == 1


async def test_text_is_streamed_while_it_is_written(web: Web, client: AsyncOpenAI):
    middle = Wait()
    web.model.says("first", middle, " second")
    stream = await ask(client, user("go"), stream=True)
    seen = ""
    async for chunk in stream:
        seen += chunk.choices[0].delta.content or ""
        if seen == "first":
            middle.over.set()
    assert seen == "first second"


async def test_text_that_was_written_before_the_stream_began_is_sent_at_once(
    web: Web, client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
):
    middle = Wait()
    web.model.says("first", middle, " second")

    async def late(backend: Backend, accepted: Accepted) -> AsyncGenerator[str | turn.TurnAnswer, None]:
        await eventually(lambda: backend.chat.live.written(accepted.session_id) == "first")
        async for piece in really(backend, accepted):
            yield piece

    really = turn.stream
    monkeypatch.setattr(turn, "stream", late)
    seen = ""
    async with asyncio.timeout(20):
        async for chunk in await ask(client, user("go"), stream=True):
            seen += chunk.choices[0].delta.content or ""
            if seen == "first":
                middle.over.set()
    assert seen == "first second"


async def test_words_before_a_tool_call_are_part_of_what_was_said(web: Web, client: AsyncOpenAI):
    look = ToolCall("c1", "list_files", '{"path": "."}')
    for _ in range(2):
        web.model.says("Let me look.\n", look)
        web.model.says("Nothing there.")
    pieces = await streamed(client, user("what is there?"))
    whole = await ask(client, user("what is there?"))
    assert "".join(pieces) == whole.choices[0].message.content == "Let me look.\n\nNothing there."


async def test_a_retry_that_repeats_the_words_goes_unnoticed(web: Web, client: AsyncOpenAI):
    web.model.says("The answer", Fails(), "The answer", " is 42.")
    assert "".join(await streamed(client, user("what?"))) == "The answer is 42."


async def test_a_retry_with_other_words_is_told_and_the_answer_can_be_had_again(web: Web, client: AsyncOpenAI):
    seen = Wait()
    web.model.says("I think", seen, Fails(), "The answer is 42.")
    key = {"Idempotency-Key": "k-1"}
    chunks = await ask(client, user("what?"), stream=True, extra_headers=key)
    with pytest.raises(openai.APIError, match="Idempotency-Key"):
        await read_on(chunks, seen.over)
    again = await ask(client, user("what?"), extra_headers=key)
    assert again.choices[0].message.content == "The answer is 42."


async def test_a_failed_turn_is_an_error_and_is_not_repeated_by_the_client(web: Web, client: AsyncOpenAI):
    web.model.says(ModelsExhausted("a: no key. Set one.", ()))
    with pytest.raises(openai.APIStatusError, match=r"a: no key\. Set one\.") as raised:
        await ask(client, user("hello"))
    assert raised.value.status_code == 424
    assert len(web.model.prompts) == 1


async def test_a_failed_turn_ends_a_stream_with_an_error(web: Web, client: AsyncOpenAI):
    web.model.says(ModelsExhausted("a: no key. Set one.", ()))
    with pytest.raises(openai.APIError, match="no key"):
        await streamed(client, user("hello"))


async def test_a_command_answers_as_the_assistant(client: AsyncOpenAI):
    answer = await ask(client, user("/help"))
    assert "/status: " in answer.choices[0].message.content
    assert "/status: " in "".join(await streamed(client, user("/help")))


async def test_an_unknown_command_is_refused(client: AsyncOpenAI):
    with pytest.raises(openai.BadRequestError, match="unknown command"):
        await ask(client, user("/nonsense"))


async def test_a_conversation_that_is_sent_whole_goes_on_in_its_session(web: Web, client: AsyncOpenAI):
    first = await client.chat.completions.with_raw_response.create(model="default", messages=[user("one")])
    said = {"role": "assistant", "content": "  re: one\n"}
    second = await client.chat.completions.with_raw_response.create(
        model="default", messages=[user("one"), said, user("two")]
    )
    assert second.headers["x-session"] == first.headers["x-session"]
    assert [type(m).__name__ for m in web.model.prompts[-1].messages] == [
        "SystemMessage",
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
    ]


async def at_once(web: Web, *keys: str) -> list[httpx.Response]:
    """Clients whose conversations began alike go on with them, all before the first of them is stored."""
    earlier = [user("hello"), {"role": "assistant", "content": "re: hello"}]
    bodies = [{"model": "default", "messages": [*earlier, user(f"it is {key}")]} for key in keys]
    asked = asyncio.gather(
        *(
            web.client.post("/v1/chat/completions", json=body, headers={**BEARER, "Idempotency-Key": key})
            for body, key in zip(bodies, keys, strict=True)
        )
    )
    database = web.path.database
    async with held(database, "select from sessions for no key update"):
        answers = await blocked(database, asked, waiting=len(keys))
    return await answers


async def test_two_that_go_on_from_the_same_first_exchange_at_once_do_not_meet(web: Web, client: AsyncOpenAI):
    await ask(client, user("hello"))
    one, two = await at_once(web, "apples", "pears")
    assert one.headers["x-session"] != two.headers["x-session"]
    assert [answer.json()["choices"][0]["message"]["content"] for answer in (one, two)] == [
        "re: it is apples",
        "re: it is pears",
    ]
    prompts = [" ".join(message.text for message in prompt.messages) for prompt in web.model.prompts[1:]]
    assert all("re: hello" in prompt for prompt in prompts)
    assert sorted(("apples" in prompt, "pears" in prompt) for prompt in prompts) == [(False, True), (True, False)]
    again = await web.client.post(
        "/v1/chat/completions",
        json={
            "model": "default",
            "messages": [user("hello"), {"role": "assistant", "content": "re: hello"}, user("it is pears")],
        },
        headers={**BEARER, "Idempotency-Key": "pears"},
    )
    assert (again.json()["id"], again.headers["x-session"]) == (two.json()["id"], two.headers["x-session"])


async def test_the_same_request_twice_at_once_is_answered_once(web: Web, client: AsyncOpenAI):
    await ask(client, user("hello"))
    one, two = await at_once(web, "apples", "apples")
    assert (one.json()["id"], one.headers["x-session"]) == (two.json()["id"], two.headers["x-session"])
    assert len(web.model.prompts) == 2


async def test_an_unknown_conversation_is_taken_over_into_a_new_session(web: Web, client: AsyncOpenAI):
    await ask(
        client,
        {"role": "developer", "content": "Be brief."},
        user("my name is Ada"),
        {"role": "assistant", "content": "Hello Ada"},
        user("what is my name?"),
    )
    told = " ".join(message.text for message in web.model.prompts[-1].messages)
    assert "Be brief." in told
    assert "my name is Ada" in told
    assert "Hello Ada" in told


async def test_a_named_session_goes_on_whatever_is_sent(web: Web, client: AsyncOpenAI):
    headers = {"X-Session": "notes"}
    await ask(client, user("one"), extra_headers=headers)
    answer = await client.chat.completions.with_raw_response.create(
        model="default", messages=[user("two")], extra_headers=headers
    )
    assert answer.headers["x-session"] == "notes"
    assert "re: one" in [message.text for message in web.model.prompts[-1].messages]


async def test_requests_that_meet_in_one_session_queue_and_hear_only_their_own_turn(web: Web, client: AsyncOpenAI):
    hold = Wait()
    web.model.says("first ", hold, "answer")
    web.model.says("second ", "answer")
    headers = {"X-Session": "shared"}
    one = asyncio.create_task(streamed(client, user("one"), extra_headers=headers))
    await hold.reached.wait()
    two = asyncio.create_task(streamed(client, user("two"), extra_headers=headers))
    three = await web.client.get("/v1/models", headers=BEARER)
    hold.over.set()
    assert three.status_code == 200
    assert "".join(await one) == "first answer"
    assert "".join(await two) == "second answer"


async def test_the_same_key_gets_the_same_answer_once_even_after_a_restart(running: Running):
    first = await running.start()
    body = {"model": "default", "messages": [user("pay the bill")]}
    headers = {**BEARER, "Idempotency-Key": "bill-7"}
    one = await first.web.client.post("/v1/chat/completions", json=body, headers=headers)
    two = await first.web.client.post("/v1/chat/completions", json=body, headers=headers)
    await first.stop()
    second = await running.start(instance=first.web.path.instance)
    three = await second.web.client.post("/v1/chat/completions", json=body, headers=headers)
    told = [answer.json() for answer in (one, two, three)]
    assert {answer["id"] for answer in told} == {told[0]["id"]}
    assert {answer["choices"][0]["message"]["content"] for answer in told} == {"re: pay the bill"}
    assert {answer.headers["x-session"] for answer in (one, two, three)} == {one.headers["x-session"]}
    assert len(first.web.model.prompts) + len(second.web.model.prompts) == 1
    await second.stop()


async def test_the_turn_goes_on_when_the_client_leaves(web: Web, client: AsyncOpenAI):
    middle = Wait()
    web.model.says("half", middle, " and half")
    headers = {"X-Session": "left", "Idempotency-Key": "left-1"}
    stream = await ask(client, user("go"), stream=True, extra_headers=headers)
    await middle.reached.wait()
    await stream.close()
    middle.over.set()
    answer = await ask(client, user("go"), extra_headers=headers)
    assert answer.choices[0].message.content == "half and half"
    assert len(web.model.prompts) == 1


async def test_a_stop_is_told_to_who_waits(web: Web, client: AsyncOpenAI):
    writing = Wait()
    web.model.says("half", writing)
    headers = {"X-Session": "stopped"}
    waiting = asyncio.create_task(ask(client, user("go"), extra_headers=headers))
    await writing.reached.wait()
    await ask(client, user("/stop"), extra_headers=headers)
    with pytest.raises(openai.APIStatusError, match="Stopped") as raised:
        await waiting
    assert raised.value.status_code == 424


async def test_who_waits_when_the_gateway_stops_is_told_how_to_go_on(running: Running):
    first = await running.start()
    writing = Wait()
    first.web.model.says("half", writing)
    body = {"model": "default", "messages": [user("go")]}
    waiting = asyncio.create_task(first.web.client.post("/v1/chat/completions", json=body, headers=BEARER))
    await writing.reached.wait()
    for task in first.tasks:
        task.cancel()
    answer = await waiting
    await first.stop()
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "restarting"
    assert answer.headers["x-should-retry"] == "false"


async def test_the_models_are_the_agents(client: AsyncOpenAI):
    listed = await client.models.list()
    assert [model.id for model in listed.data] == ["default"]
    assert (await client.models.retrieve("default")).owned_by == "supaclaw"
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        await client.models.retrieve("gpt-9")


async def test_a_wrong_key_is_an_authentication_error(web: Web):
    async with AsyncOpenAI(base_url=f"{web.url}/v1", api_key="claw_wrong") as client:
        with pytest.raises(openai.AuthenticationError) as raised:
            await ask(client, user("hello"))
    assert raised.value.code == "invalid_api_key"
    assert raised.value.type == "invalid_request_error"


@pytest.mark.parametrize(
    ("change", "param", "status"),
    [
        ({"tools": [{"type": "function"}]}, "tools[0].name", 400),
        ({"n": 2}, "n", 400),
        ({"logprobs": True}, "logprobs", 400),
        ({"suffix": "and then"}, "suffix", 400),
        ({"response_format": {"type": "xml"}}, "response_format", 400),
        ({"modalities": ["audio"]}, "modalities", 400),
        ({"audio": {"voice": "x"}}, "audio", 400),
        ({"stream": "yes"}, "stream", 400),
        ({"model": "gpt-9"}, "model", 404),
        ({"model": ""}, "model", 400),
        ({"messages": []}, "messages", 400),
        ({"messages": "hi"}, "messages", 400),
        ({"messages": ["hi"]}, "messages[0]", 400),
        ({"messages": [{"role": "system", "content": "hi"}]}, "messages", 400),
        ({"messages": [{"role": "tool", "content": "hi"}]}, "messages[0].tool_call_id", 400),
        ({"messages": [{"role": "wizard", "content": "hi"}]}, "messages[0].role", 400),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content", 400),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0]", 400),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type", 400),
        ({"messages": [{"role": "user", "content": ["x"]}]}, "messages[0].content[0].type", 400),
        ({"messages": [{"role": "assistant", "tool_calls": [{}]}, {"role": "user"}]}, "messages[0].tool_calls[0]", 400),
        ({"messages": [{"role": "user", "content": " "}]}, "messages", 400),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(web: Web, change: dict[str, object], param: str, status: int):
    body = {"model": "default", "messages": [user("hi")], **change}
    answer = await web.client.post("/v1/chat/completions", json=body, headers=BEARER)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param
    assert web.model.prompts == []


@pytest.mark.parametrize("body", [b"{", b"[]", b"[" * 100_000, b"\xff"])
async def test_a_body_that_is_no_request_is_refused(web: Web, body: bytes):
    answer = await web.client.post("/v1/chat/completions", content=body, headers=BEARER)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


async def test_fields_without_effect_and_parts_of_text_are_taken(web: Web, client: AsyncOpenAI):
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    answer = await ask(
        client,
        {"role": "user", "content": parts},
        temperature=0.1,
        top_p=0.5,
        max_tokens=5,
        user="ada",
        seed=1,
        n=1,
        store=False,
        metadata={"a": "b"},
        response_format={"type": "text"},
        tool_choice="none",
        stop=["."],
        extra_body={"top_k": 40, "frobnicate": {"deep": [1]}},
    )
    assert answer.choices[0].message.content == "re: one\ntwo"


@pytest.mark.parametrize("name", ["", "x" * 201, "with space"])
async def test_a_session_name_is_short_and_plain(web: Web, name: str):
    body = {"model": "default", "messages": [user("hi")]}
    answer = await web.client.post("/v1/chat/completions", json=body, headers={**BEARER, "X-Session": name})
    assert answer.status_code == 400


async def test_a_stream_is_what_the_protocol_says(web: Web):
    body = {"model": "default", "stream": True, "messages": [user("hi")]}
    answer = await web.client.post("/v1/chat/completions", json=body, headers=BEARER)
    lines = [line for line in answer.text.split("\n\n") if line]
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert all(line.startswith("data: ") for line in lines)
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[0].removeprefix("data: "))["object"] == "chat.completion.chunk"

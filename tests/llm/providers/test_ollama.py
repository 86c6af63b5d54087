"""Ollama by its own protocol, over a real socket."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from gateway.domain.conversation.model import (
    AssistantMessage,
    Image,
    Prompt,
    Reply,
    SystemMessage,
    TextDelta,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from gateway.domain.principals import Label
from gateway.domain.settings import ModelSettings
from gateway.llm.client import FirstAnswer, ModelClient, build_client
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.protocol.bounds import MAX_LINE_BYTES
from gateway.llm.protocol.ollama import as_openai
from gateway.llm.vendors import CONTEXT, CUTS, Refusals
from tests.fakes.ollama import Body, FakeOllama, Installed, end, piece
from tests.llm.chain import FakeClock, collect, last_reply

LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}}, Label.OWNER)
ASKED = Prompt((SystemMessage("Be kind."), UserMessage("hello")), (LOOK,))


async def made(server: FakeOllama, refusals: Refusals | None = None, **models: object) -> ModelClient:
    chain = ModelSettings.model_validate({"primary": "ollama/qwen3:8b", **models})
    return await build_client(chain, {"OLLAMA_HOST": server.root}, FakeClock(), refusals=refusals)


async def answered(
    server: FakeOllama, prompt: Prompt, refusals: Refusals | None = None, **models: object
) -> tuple[Reply, list[TextDelta]]:
    client = await made(server, refusals, **models)
    events = await collect(client.stream(prompt))
    await client.close()
    return last_reply(events), [event for event in events if isinstance(event, TextDelta)]


async def test_the_context_is_asked_for_and_the_prompt_is_made_for_it() -> None:
    lines = [piece(content="Hel"), piece(content="lo"), end()]
    async with FakeOllama(Installed("qwen3:8b"), answers=[lines]) as server:
        reply, deltas = await answered(server, ASKED)
        client = await made(server)
    [sent] = server.chats
    assert (reply.text, reply.usage.input_tokens, [each.text for each in deltas]) == ("Hello", 100, ["Hel", "lo"])
    assert sent["options"] == {"num_ctx": 32_768, "num_predict": 4_096, "temperature": 0.7}
    assert (sent["messages"][0], sent["keep_alive"]) == ({"role": "system", "content": "Be kind."}, "30m")
    assert client.prompt_budget() == 32_768 - 4_096


@pytest.mark.parametrize("there", [True, False])
async def test_a_model_is_looked_up_once(there: bool) -> None:
    answers = [[piece(content="ok"), end()]] * 2
    async with FakeOllama(*[Installed("qwen3:8b")] * there, answers=answers) as server:
        client = await made(server)
        server.models["qwen3:8b"] = Installed("qwen3:8b")
        for _ in range(2):
            assert last_reply(await collect(client.stream(ASKED))).text == "ok"
        await client.close()
    assert server.looked_at.count("/api/show") == (1 if there else 2), "again only where the server did not know it"
    assert [chat["options"]["num_ctx"] for chat in server.chats] == [32_768] * 2


async def test_a_first_answer_tells_how_fast_the_model_writes() -> None:
    lines = [piece(content="one "), piece(content="two"), end(written=60)]
    async with FakeOllama(Installed("qwen3:8b"), answers=[lines]) as server:
        client = await made(server)
        first = await client.try_out()
        await client.close()
    assert (first.reply.text, first.reply.usage.output_tokens) == ("one two", 60)
    reply = replace(first.reply, latency_ms=3_210)
    assert str(FirstAnswer(reply, 20.0)) == "answered in 3.2 s, 20 tokens/s"
    assert str(FirstAnswer(reply, None)) == "answered in 3.2 s"


async def test_an_answer_leaves_a_small_context_to_the_prompt() -> None:
    async with FakeOllama(Installed("qwen3:8b", window=8_192), answers=[[piece(content="ok"), end()]]) as server:
        await answered(server, ASKED)
    assert server.chats[0]["options"] == {"num_ctx": 8_192, "num_predict": 2_048, "temperature": 0.7}


async def test_calls_come_whole_without_ids_and_their_results_go_back_by_name() -> None:
    two = [{"function": {"name": "look", "arguments": {"at": at}}} for at in ("a", "b")]
    lines = [piece(thinking="Hm."), piece(tool_calls=two[:1]), piece(tool_calls=two[1:]), end()]
    async with FakeOllama(Installed("qwen3:8b"), answers=[lines, [piece(content="done"), end()]]) as server:
        reply, _ = await answered(server, ASKED)
        said = AssistantMessage(reply.text, reply.calls, reply.fields)
        results = [ToolMessage(call.id, "seen") for call in reply.calls]
        await answered(server, Prompt((*ASKED.messages, said, *results), ASKED.tools))
    assert [(call.name, call.arguments) for call in reply.calls] == [("look", '{"at": "a"}'), ("look", '{"at": "b"}')]
    assert len({call.id for call in reply.calls}) == 2
    *_, calling, first, second = server.chats[1]["messages"]
    assert calling["tool_calls"] == two
    assert first == second == {"role": "tool", "content": "seen", "tool_name": "look"}


async def test_pictures_are_beside_the_words() -> None:
    prompt = Prompt((UserMessage("What is it?", (Image("image/jpeg", b"\xff"),)),))
    vision = Installed("qwen3:8b", capabilities=["completion", "vision"])
    async with FakeOllama(vision, answers=[[piece(content="A cat."), end()]]) as server:
        await answered(server, prompt)
    assert server.chats[0]["messages"] == [{"role": "user", "content": "What is it?", "images": ["/w=="]}]


@pytest.mark.parametrize(("level", "think"), [(None, None), ("off", False), ("low", True)])
async def test_thinking_is_a_switch(level: str | None, think: bool | None) -> None:
    async with FakeOllama(Installed("qwen3:8b"), answers=[[piece(content="ok"), end()]]) as server:
        await answered(server, ASKED, thinking=level)
    assert server.chats[0].get("think") is think


async def test_a_model_without_tools_answers_without_them() -> None:
    refused: Body = {"error": "registry.ollama.ai/library/qwen3:8b does not support tools", "status": 400}
    async with FakeOllama(Installed("qwen3:8b"), answers=[[refused], [piece(content="ok"), end()]]) as server:
        reply, _ = await answered(server, ASKED)
    assert reply.text == "ok"
    assert ["tools" in sent for sent in server.chats] == [True, False]


async def test_less_context_than_asked_for_is_noted() -> None:
    refusals = Refusals()
    async with FakeOllama(Installed("qwen3:8b"), answers=[[piece(content="ok"), end()]]) as server:
        server.most = 4_096
        await answered(server, ASKED, refusals)
    [news] = refusals.take_news()
    assert (news.model, news.part) == (
        "ollama/qwen3:8b",
        f"{CONTEXT}32768 tokens; it was loaded with 4096",
    )


async def test_a_prompt_that_grows_without_being_counted_as_more_is_noted_once() -> None:
    refusals, grown = Refusals(), list[UserMessage]()
    counts = (1_400, 1_500, 1_500, 1_500)
    answers = [[piece(content="ok"), end(prompt=count)] for count in counts]
    async with FakeOllama(Installed("qwen3:8b"), answers=answers) as server:
        client = await made(server, refusals)
        for _ in counts:
            grown.append(UserMessage("The printer is out of paper again. " * 250))
            await collect(client.stream(Prompt((SystemMessage("Be kind."), *grown))))
        await client.close()
    [news] = refusals.take_news()
    assert (news.model, news.part) == ("ollama/qwen3:8b", f"{CONTEXT}32768{CUTS}")


async def test_an_error_in_the_stream_is_an_error() -> None:
    lines = [piece(content="Hel"), {"error": "an error was encountered while running the model: CUDA out of memory"}]
    async with FakeOllama(Installed("qwen3:8b"), answers=[lines, [piece(content="Hello"), end()]]) as server:
        reply, _ = await answered(server, ASKED)
    assert (reply.text, "CUDA" in reply.failed[0].message) == ("Hello", True)


@pytest.mark.parametrize("calls", [5, ["look"], {"look": 1}])
async def test_calls_of_another_form_are_a_failed_try(calls: object) -> None:
    answers = [[piece(tool_calls=calls), end()], [piece(content="Hello"), end()]]
    async with FakeOllama(Installed("qwen3:8b"), answers=answers) as server:
        reply, _ = await answered(server, ASKED)
    assert (reply.text, len(reply.failed)) == ("Hello", 1)


async def test_a_line_without_an_end_is_read_up_to_its_bound() -> None:
    read = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal read
        while read < 4 * MAX_LINE_BYTES:
            read += 2**16
            yield b"x" * 2**16

    with pytest.raises(ModelError) as caught:
        _ = [chunk async for chunk in as_openai(endless())]
    assert (caught.value.kind, read) == (ErrorKind.ENDLESS, MAX_LINE_BYTES + 2**16)


async def test_what_is_asked_of_an_earlier_call_is_parsed_arguments() -> None:
    asked = AssistantMessage("", (ToolCall("x", "look", '{"at": "a"}'),))
    async with FakeOllama(Installed("qwen3:8b"), answers=[[piece(content="ok"), end()]]) as server:
        await answered(server, Prompt((UserMessage("hi"), asked, ToolMessage("x", "seen")), (LOOK,)))
    assert server.chats[0]["messages"][1]["tool_calls"][0]["function"]["arguments"] == {"at": "a"}

"""Fields of a provider's replies go back to it, and to no other, over real connections."""

import json
from collections.abc import AsyncIterator, Sequence
from importlib import import_module
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from pydantic import SecretStr

from gateway.domain.conversation.model import (
    AssistantMessage,
    Prompt,
    ProviderFields,
    Reply,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from gateway.domain.principals import Label
from gateway.domain.settings import CallParams
from gateway.llm.provider import ProviderReply
from gateway.llm.providers.litellm import build
from gateway.llm.vendors import Endpoint, vendor
from tests.fakes.openai_server import FakeModels, Rule
from tests.fakes.served import Served
from tests.llm.chain import client_for, collect, last_reply

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("ignore:Accessing the 'model_:DeprecationWarning"),
]

LOOK = ToolSpec("look", "Looks.", {"type": "object", "properties": {"at": {"type": "string"}}}, Label.OWNER)
QUESTION = UserMessage("What colour is the sky?")
SIGNATURE = "U0lHTkFUVVJF+/=="


@pytest_asyncio.fixture(loop_scope="module", scope="module", autouse=True)
async def connections() -> AsyncIterator[None]:
    """litellm keeps connections per event loop; they are closed with the loop."""
    yield
    await import_module("litellm").close_litellm_async_clients()


@pytest_asyncio.fixture(loop_scope="module")
async def models() -> AsyncIterator[FakeModels]:
    async with FakeModels() as server:
        yield server


def chunks(*deltas: dict[str, Any]) -> str:
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    return "".join(f"data: {json.dumps(event)}\n\n" for event in (*events, end)) + "data: [DONE]\n\n"


def thinking(tool: str = "look", **arguments: object) -> str:
    """A stream that thinks, and calls with a signature."""
    call = {"index": 0, "id": "a", "type": "function", "function": {"name": tool, "arguments": json.dumps(arguments)}}
    call["extra_content"] = {"google": {"thought_signature": SIGNATURE}}
    return chunks({"reasoning_content": "First I"}, {"reasoning_content": " look."}, {"tool_calls": [call]})


def after(reply: Reply | ProviderReply) -> Prompt:
    """The prompt with the result of the call."""
    results = [ToolMessage(call.id, "blue") for call in reply.calls]
    return Prompt((QUESTION, AssistantMessage(reply.text, reply.calls, reply.fields), *results), (LOOK,))


def assistant(body: dict[str, Any]) -> dict[str, Any]:
    [found] = [message for message in body["messages"] if message["role"] == "assistant"]
    return found


async def test_it_goes_back_to_its_provider_alone(models: FakeModels) -> None:
    client = await client_for(models.base_url, "deepseek/deepseek-chat", "openai/gpt-x")
    models.rules = [Rule(raw=thinking(), times=1)]
    reply = last_reply(await collect(client.stream(Prompt((QUESTION,), (LOOK,)))))
    await collect(client.stream(after(reply)))
    assert assistant(models.bodies[-1])["reasoning_content"] == "First I look."
    [call] = assistant(models.bodies[-1])["tool_calls"]
    assert call["extra_content"] == {"google": {"thought_signature": SIGNATURE}}
    models.rules.append(Rule(status=401, after_tools=True, times=1))
    await collect(client.stream(after(reply)))
    assert [asked.model for asked in list(models.asked)[-2:]] == ["deepseek-chat", "gpt-x"]
    for name in ("reasoning_content", "First", SIGNATURE):
        assert (name in json.dumps(models.bodies[-2]), name in json.dumps(models.bodies[-1])) == (True, False)
    await client.close()


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "property 'reasoning_content' is unsupported"),
        (400, "reasoning_content is for display only. Please remove the reasoning_content from your message."),
        (422, "messages.1.tool_calls.0.extra_content: Extra inputs are not permitted"),
    ],
)
async def test_a_server_that_refuses_its_own_fields_gets_them_no_more(
    models: FakeModels, status: int, message: str
) -> None:
    client = await client_for(models.base_url, "fake/strict")
    models.rules = [Rule(raw=thinking(), times=1), Rule(status=status, message=message, after_tools=True, times=1)]
    reply = last_reply(await collect(client.stream(Prompt((QUESTION,), (LOOK,)))))
    answer = last_reply(await collect(client.stream(after(reply))))
    assert (answer.text, answer.failed) == ("ok", ())
    assert SIGNATURE not in json.dumps(models.bodies[-1])
    assert assistant(models.bodies[-1])["tool_calls"]
    await client.close()


@pytest.mark.parametrize(
    "message",
    [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
        "Function call is missing a thought_signature in functionCall parts.",
    ],
)
async def test_a_server_that_misses_them_in_calls_of_others_reads_those_as_words(
    models: FakeModels, message: str
) -> None:
    client = await client_for(models.base_url, "fake/strict")
    theirs = (ToolCall("b", "look", "{}"),)
    others = AssistantMessage("", theirs, ProviderFields("elsewhere", '{"reasoning_content": "secret"}'))
    prompt = Prompt((QUESTION, others, ToolMessage("b", "blue"), UserMessage("Sure?")), (LOOK,))
    models.rules = [Rule(status=400, message=message, times=1)]
    assert last_reply(await collect(client.stream(prompt))).text == "ok"
    assert [m["role"] for m in models.bodies[-1]["messages"]] == ["user", "assistant", "user", "user"]
    assert "secret" not in json.dumps(models.bodies)
    await client.close()


def reasoned(*calls: str) -> str:
    """A response that thinks before each call, and between them."""
    items: list[dict[str, Any]] = []
    for call in calls:
        items.append({"type": "reasoning", "id": f"rs_{call}", "summary": [], "encrypted_content": SIGNATURE + call})
        items.append({"type": "function_call", "call_id": call, "name": "look", "arguments": "{}", "id": f"fc_{call}"})
    done = ({"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items))
    return sse(*done, {"type": "response.completed", "response": {"status": "completed", "output": items}})


async def test_encrypted_reasoning_goes_back_before_its_call_and_to_no_other_api(models: FakeModels) -> None:
    client = await client_for(models.base_url, "openai/gpt-x", api="responses")
    models.rules = [Rule(raw=reasoned("a", "b"))]
    reply = last_reply(await collect(client.stream(Prompt((QUESTION,), (LOOK,)))))
    await collect(client.stream(after(reply)))
    sent = models.bodies[-1]["input"]
    assert [item.get("encrypted_content", item.get("call_id")) for item in sent[1:]] == [
        f"{SIGNATURE}a",
        "a",
        f"{SIGNATURE}b",
        "b",
        "a",
        "b",
    ]
    by_chat = await client_for(models.base_url, "openai/gpt-x")
    models.rules = []
    await collect(by_chat.stream(after(reply)))
    assert (len(assistant(models.bodies[-1])["tool_calls"]), SIGNATURE in json.dumps(models.bodies[-1])) == (2, False)
    await client.close()
    await by_chat.close()


async def answer(endpoint: Endpoint, model: str, prompt: Prompt) -> ProviderReply:
    events = [event async for event in build(endpoint).stream(model, prompt, CallParams())]
    assert isinstance(events[-1], ProviderReply)
    return events[-1]


def sse(*events: dict[str, Any]) -> str:
    return "".join(f"event: {event.get('type', '')}\ndata: {json.dumps(event)}\n\n" for event in events)


async def test_claudes_signed_thinking_goes_back_through_litellm(models: FakeModels) -> None:
    usage = {"input_tokens": 9, "output_tokens": 9}
    head = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "usage": usage}
    deltas = (
        {"type": "thinking_delta", "thinking": "First I"},
        {"type": "thinking_delta", "thinking": " look."},
        {"type": "signature_delta", "signature": SIGNATURE},
    )
    use = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}}
    models.rules = [
        Rule(
            raw=sse(
                {"type": "message_start", "message": head},
                {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}},
                *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
                {"type": "content_block_stop", "index": 0},
                {"type": "content_block_start", "index": 1, "content_block": use},
                {
                    "type": "content_block_delta",
                    "index": 1,
                    "delta": {"type": "input_json_delta", "partial_json": '{"at": "sky"}'},
                },
                {"type": "content_block_stop", "index": 1},
                {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": usage},
                {"type": "message_stop"},
            )
        )
    ]
    claude = Endpoint(vendor("anthropic"), SecretStr("sk-ant-test"), models.url)
    reply = await answer(claude, "anthropic/claude-sonnet-4-5", Prompt((QUESTION,), (LOOK,)))
    assert (reply.text, reply.calls[0].arguments) == ("", '{"at": "sky"}')
    await answer(claude, "anthropic/claude-sonnet-4-5", after(reply))
    [blocks] = [m["content"] for m in models.bodies[-1]["messages"] if m["role"] == "assistant"]
    assert blocks[0] == {"type": "thinking", "thinking": "First I look.", "signature": SIGNATURE}
    assert blocks[1]["type"] == "tool_use"


async def test_geminis_signature_of_a_call_goes_back_through_litellm() -> None:
    asked: list[dict[str, Any]] = []
    parts: Sequence[dict[str, Any]] = (
        {"text": "First I look.", "thought": True},
        {"functionCall": {"name": "look", "args": {"at": "sky"}}, "thoughtSignature": SIGNATURE},
    )

    async def stream(request: web.Request) -> web.Response:
        asked.append(await request.json())
        said = parts if len(asked) == 1 else [{"text": "It is blue."}]
        events = [{"candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in said]
        events[-1]["candidates"][0]["finishReason"] = "STOP"
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        return web.Response(text=body, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/{rest:.*}", stream)
    async with Served(app) as server:
        gemini = Endpoint(vendor("gemini"), SecretStr("AIza-test"), server.root)
        reply = await answer(gemini, "gemini/gemini-3-pro-preview", Prompt((QUESTION,), (LOOK,)))
        assert (reply.text, len(reply.calls)) == ("", 1)
        assert (await answer(gemini, "gemini/gemini-3-pro-preview", after(reply))).text == "It is blue."
    [call] = [part for turn in asked[1]["contents"] for part in turn["parts"] if "function_call" in part]
    assert call["thoughtSignature"] == SIGNATURE

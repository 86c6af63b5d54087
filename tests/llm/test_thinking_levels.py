"""How much a model thinks: what each provider is sent, what it refuses, and what it shows of it."""

import json
from collections.abc import AsyncIterator, Mapping
from datetime import timedelta

import pytest
from pydantic import SecretStr

from gateway.domain.conversation.model import (
    AssistantMessage,
    Prompt,
    Reply,
    SystemMessage,
    ThinkingDelta,
    UserMessage,
)
from gateway.domain.settings import CallParams, ThinkingLevel
from gateway.llm.protocol.wire import litellm_thinking, thinking_json
from gateway.llm.provider import ProviderReply
from gateway.llm.providers.openai import build
from gateway.llm.vendors import Endpoint, Refusal, Refusals, vendor
from tests.fakes.openai_server import FakeModels, Rule
from tests.llm.chain import HELLO, FakeClock, client_for

REASONED = "\n\n".join(
    f"data: {json.dumps(chunk)}"
    for chunk in (
        {"choices": [{"delta": {"reasoning_content": "Two and "}}]},
        {"choices": [{"delta": {"reasoning_content": "two."}}]},
        {"choices": [{"delta": {"content": "<think>Is it?</think>Four."}, "finish_reason": "stop"}]},
        {
            "choices": [],
            "usage": {
                "prompt_tokens": 9,
                "completion_tokens": 60,
                "completion_tokens_details": {"reasoning_tokens": 50},
            },
        },
    )
)


@pytest.mark.parametrize(
    ("prefix", "name", "level", "sent"),
    [
        ("openai", "gpt-x", None, {}),
        ("openai", "gpt-x", "high", {"reasoning_effort": "high"}),
        ("openai", "gpt-x", "off", {"reasoning_effort": "none"}),
        ("openrouter", "any/model", "low", {"reasoning": {"effort": "low"}}),
        ("openrouter", "any/model", "off", {"reasoning": {"enabled": False}}),
        ("deepseek", "deepseek-v4-pro", "medium", {"thinking": {"type": "enabled"}}),
        ("deepseek", "deepseek-v4-pro", "off", {"thinking": {"type": "disabled"}}),
        ("dashscope", "qwen-plus", "off", {"enable_thinking": False}),
        ("vllm", "Qwen/Qwen3-8B", "high", {"chat_template_kwargs": {"enable_thinking": True}}),
        ("vllm", "openai/gpt-oss-20b", "low", {"reasoning_effort": "low"}),
        ("groq", "qwen/qwen3-32b", "high", {"reasoning_effort": "default"}),
        ("ollama", "gpt-oss:20b", "off", {"reasoning_effort": "none"}),
        ("mistral", "mistral-medium", "low", {"reasoning_effort": "high"}),
    ],
)
def test_the_level_in_the_words_of_each_provider(
    prefix: str, name: str, level: ThinkingLevel | None, sent: Mapping[str, object]
) -> None:
    assert thinking_json(prefix, name, level) == sent


def test_claudes_thinking_takes_nothing_of_its_answer() -> None:
    assert litellm_thinking("gemini-3", "low", 4096) == {"reasoning_effort": "low"}
    asked = litellm_thinking("claude-sonnet-5-5", "high", 4096)
    assert asked == {"reasoning_effort": "high", "max_tokens": 8192, "temperature": None, "top_p": None}


@pytest.fixture
async def models() -> AsyncIterator[FakeModels]:
    async with FakeModels() as server:
        yield server


async def test_a_refused_level_is_left_out_for_a_day_and_others_are_not(models: FakeModels) -> None:
    clock = FakeClock()
    refusals = Refusals(clock)
    provider = build(Endpoint(vendor("openai"), SecretStr("sk-test"), models.base_url, refusals))
    models.rules = [Rule(status=400, message="This model does not support thinking at 'none'.", times=1)]

    async def ask(level: ThinkingLevel) -> object:
        events = [event async for event in provider.stream("openai/x", HELLO, CallParams(thinking=level))]
        assert isinstance(events[-1], ProviderReply)
        return models.bodies[-1].get("reasoning_effort")

    assert [await ask("off"), await ask("off"), await ask("high")] == [None, None, "high"]
    assert [(each.model, each.part) for each in refusals.take_news()] == [("openai/x", "thinking off")]
    assert refusals.take_news() == []
    await clock.sleep(timedelta(days=1, seconds=1).total_seconds())
    assert await ask("off") == "none"
    await provider.close()


def test_refusals_of_an_earlier_process_count_unless_newer_ones_are_known() -> None:
    clock = FakeClock()
    refusals, old = Refusals(clock), clock.now() - timedelta(hours=23)
    refusals.restore([Refusal("here", "tools", "m", old), Refusal("here", "top_p", "m", old - timedelta(hours=2))])
    assert refusals.of("here") == {"tools"}
    refusals.note("there", "m", "tools")
    refusals.restore([Refusal("there", "tools", "m", old)])
    assert refusals.of("there") == {"tools"}
    assert refusals.of("elsewhere") == frozenset()


async def test_what_it_thought_is_told_apart_from_its_answer(models: FakeModels) -> None:
    models.rules = [Rule(raw=f"{REASONED}\n\ndata: [DONE]\n\n")]
    client = await client_for(models.base_url, "openai/gpt-x")
    events = [event async for event in client.stream(HELLO)]
    assert "".join(event.text for event in events if isinstance(event, ThinkingDelta)) == "Two and two.Is it?"
    reply = events[-1]
    assert isinstance(reply, Reply)
    assert reply.text == "Four."
    assert reply.thought is not None
    assert reply.thought.text == "Two and two.Is it?"
    assert (reply.usage.output_tokens, reply.usage.thinking_tokens) == (60, 50)
    await client.close()


async def test_a_server_that_wants_turns_gets_them(models: FakeModels) -> None:
    said = (AssistantMessage("Hello."), UserMessage("Hi."), UserMessage("Are you there?"))
    models.rules = [Rule(status=400, message="Conversation roles must alternate user/assistant/user/…", times=1)]
    client = await client_for(models.base_url, "openai/gpt-x")
    [*_, reply] = [event async for event in client.stream(Prompt((SystemMessage("Be kind."), *said)))]
    assert isinstance(reply, Reply)
    assert [(m["role"], m["content"]) for m in models.bodies[-1]["messages"]] == [
        ("system", "Be kind."),
        ("user", "(The conversation began earlier.)"),
        ("assistant", "Hello."),
        ("user", "Hi.\n\nAre you there?"),
    ]
    await client.close()

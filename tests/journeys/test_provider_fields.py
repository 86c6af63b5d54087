"""Fields of a provider's replies go back to it after a kill, and reach no other provider."""

import json
from typing import Any

import httpx
import pytest

from gateway.config.failpoints import Step
from tests.fakes.openai_server import Body, FakeModels, Rule
from tests.journeys.process import GatewayProcess, configured, said
from tests.llm.providers.test_given_back import SIGNATURE, thinking

NAMES = ("First I look.", SIGNATURE)


def assistants(body: Body) -> list[dict[str, Any]]:
    return [message for message in body["messages"] if message["role"] == "assistant"]


def told(body: Body) -> list[bool]:
    return [name in json.dumps(body) for name in NAMES]


async def test_they_survive_a_kill_and_stay_with_their_provider(process: GatewayProcess, models: FakeModels) -> None:
    async with FakeModels() as other:
        config = configured(None, models)
        config["models"] |= {"primary": "deepseek/one", "fallbacks": ["xai/other"]}
        access = config["models"]["providers"].pop("openai")
        config["models"]["providers"] = {"deepseek": access, "xai": access | {"base_url": other.base_url}}
        process.configure(config)
        models.rules = [Rule("mk1x", raw=thinking("read_file", path="USER.md"), times=1)]
        await process.start(SUPACLAW_FAIL=Step.STEP_COMMITTED)
        with pytest.raises(httpx.HTTPError):
            await process.complete("look mk1x", key="1")
        assert (await process.ended()).code == -9
        await process.start()
        assert said(await process.complete("look mk1x", key="1")).endswith("fin1x")
        assert len(models.bodies) == 2
        [asking] = assistants(models.bodies[-1])
        assert asking["reasoning_content"] == "First I look."
        assert asking["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": SIGNATURE}}
        models.rules.append(Rule("mk2x", status=401, times=1))
        assert said(await process.complete("again mk2x", key="2")).endswith("fin2x")
        assert told(other.bodies[-1]) == [False, False]
        assert assistants(other.bodies[-1])[0]["tool_calls"]
        await process.terminate()
        await process.start()
        assert said(await process.complete("once more mk3x", key="3")).endswith("fin3x")
        assert told(models.bodies[-1]) == [True, True]
        [row] = await process.rows(
            "select f.source, m.kind from provider_fields f join messages m on m.id = message_id"
        )
        assert row["kind"] == "tool_intent"
        assert "sk-of-the-owner" not in row["source"]


async def test_a_client_brings_none(process: GatewayProcess, models: FakeModels) -> None:
    process.configure(configured(None, models))
    await process.start()
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    signed = {**call, "extra_content": {"google": {"thought_signature": SIGNATURE}}}
    said_before = {"role": "assistant", "content": "Yes.", "reasoning_content": NAMES[0], "reasoning_details": [{}]}
    brought = [
        {"role": "user", "content": "before"},
        said_before,
        {"role": "user", "content": "look"},
        {**said_before, "tool_calls": [signed]},
        {"role": "tool", "tool_call_id": "a", "content": "blue"},
        {"role": "user", "content": "now mk1x"},
    ]
    async with process.http() as client:
        body = {"model": "default", "messages": brought, "tools": [tool]}
        answer = await client.post("/v1/chat/completions", json=body)
    assert said(answer).endswith("fin1x")
    assert told(models.bodies[-1]) == [False, False]
    assert "reasoning" not in json.dumps(assistants(models.bodies[-1]))
    assert await process.rows("select from provider_fields") == []

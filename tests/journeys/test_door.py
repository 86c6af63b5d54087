"""A program with tools of its own, whose gateway dies in the middle: each call is handed over once."""

from typing import Any

import httpx
import pytest

from tests.conftest import one_of_a_class
from tests.fakes.openai_server import Call, FakeModels, Rule
from tests.journeys.process import GatewayProcess, configured

pytestmark = pytest.mark.thorough

SHELL = {"type": "function", "function": {"name": "shell", "parameters": {"type": "object"}}}
USER = {"role": "user", "content": "look mk1x"}


async def complete(process: GatewayProcess, retry: int, *messages: dict[str, Any]) -> dict[str, Any]:
    body = {"model": "default", "messages": messages, "tools": [SHELL]}
    headers = {"Authorization": f"Bearer {process.token}", "x-stainless-retry-count": str(retry)}
    async with httpx.AsyncClient(base_url=process.url, headers=headers, timeout=60, trust_env=False) as client:
        answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    [choice] = answer.json()["choices"]
    return choice


async def persistent(process: GatewayProcess, *messages: dict[str, Any]) -> dict[str, Any]:
    """As the SDKs do: the same body again, counted, once the gateway is back."""
    try:
        return await complete(process, 0, *messages)
    except httpx.TransportError:
        assert (await process.ended()).code == -9
        await process.start()
        return await complete(process, 1, *messages)


@pytest.mark.parametrize(
    "step",
    one_of_a_class(
        [
            "inbound.committed",
            "turn.taken",
            "step.committed",
            "answer.ready",
            "answer.committed",
            "inbound.committed:2",
            "answer.ready:2",
        ],
        {"turn.taken", "step.committed", "answer.ready:2"},
    ),
)
async def test_a_call_of_a_client_is_not_doubled(process: GatewayProcess, models: FakeModels, step: str) -> None:
    models.rules = [Rule("look mk1x", tool_calls=(Call("shell", {"command": "ls"}),))]
    process.configure(configured(None, models))
    await process.start(SUPACLAW_FAIL=step)

    first = await persistent(process, USER)
    assert first["finish_reason"] == "tool_calls"
    [call] = first["message"]["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "a.txt"}
    second = await persistent(process, USER, first["message"], result)

    assert second["finish_reason"] == "stop"
    rows = await process.rows("select kind, call_id, text from messages order by seq")
    kinds = [row["kind"] for row in rows]
    assert kinds == ["user", "tool_intent", "assistant", "tool_result", "user", "assistant"]
    assert {row["call_id"] for row in rows if row["call_id"]} == {call["id"]}
    assert await process.rows("select count(distinct session_id) as n from messages") == [(1,)]
    assert await process.rows("select from tasks where status <> 'completed' and kind = 'chat'") == []

"""The fake is itself relied upon by journeys and benchmarks."""

import asyncio
import sys

import httpx

from tests.fakes.openai_server import Call, FakeModels, Rule


def chat(text: str, **rest: object) -> dict[str, object]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **rest}


async def said(client: httpx.AsyncClient, server: FakeModels, text: str) -> object:
    answer = await client.post(f"{server.base_url}/chat/completions", json=chat(text))
    return answer.json()["choices"][0]["message"]["content"]


async def test_markers_are_answered_highest_first() -> None:
    async with FakeModels() as server, httpx.AsyncClient() as client:
        assert str(await said(client, server, "mk3x and mk12x")).endswith("fin12x")
        assert await said(client, server, "nothing special") == "ok"


async def test_a_rule_with_calls_fires_once_per_marker() -> None:
    async with FakeModels(Rule("mk", tool_calls=(Call("look"),))) as server, httpx.AsyncClient() as client:
        assert [await said(client, server, text) for text in ("mk1x", "mk2x")] == [None, None]
        assert str(await said(client, server, "mk1x")).endswith("fin1x")


async def test_it_can_be_controlled_over_http() -> None:
    async with FakeModels() as server, httpx.AsyncClient(base_url=server.url) as client:
        rules = [{"match": "x", "tool_calls": [{"name": "look"}]}, {"match": "y", "text": "yes"}]
        await client.post("/__mock/config", json={"rules": rules, "latency_ms": 1})
        assert (await said(client, server, "x"), await said(client, server, "y")) == (None, "yes")
        assert (await client.get("/__mock/log")).json()["count"] == 2
        await client.post("/__mock/reset", json={})
        assert (server.count, len(server.asked)) == (0, 0)
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "mock-model"


async def test_anthropic_requests_are_answered_in_their_own_shape() -> None:
    async with FakeModels(Rule(text="hi")) as server, httpx.AsyncClient() as client:
        body = (await client.post(f"{server.url}/v1/messages", json=chat("x"))).json()
    assert (body["content"], body["stop_reason"]) == ([{"type": "text", "text": "hi"}], "end_turn")


async def test_it_runs_alone() -> None:
    command = (sys.executable, "-m", "tests.fakes.openai_server", "--port", "0")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    address = (await process.stdout.readline()).decode().strip()
    async with httpx.AsyncClient() as client:
        answer = await client.post(f"{address}/chat/completions", json=chat("mk7x"))
    assert answer.json()["choices"][0]["message"]["content"].endswith("fin7x")
    process.terminate()
    await process.wait()

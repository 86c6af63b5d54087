"""The mock model, in a process of its own."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.journeys.process import ROOT


class MockModel:
    """Its address, and how to change and ask it."""

    def __init__(self, base_url: str, client: httpx.AsyncClient) -> None:
        self.base_url = base_url
        self._client = client

    async def take(self, latency_ms: int) -> None:
        """Every answer takes so long from now on; what was asked before is forgotten."""
        await self._client.post("/__mock/config", json={"latency_ms": latency_ms})
        await self._client.post("/__mock/reset")

    async def asked(self) -> list[dict[str, Any]]:
        """The bodies of all requests since `take`."""
        log = (await self._client.get("/__mock/log")).json()
        return [request["body"] for request in log["requests"]]


@asynccontextmanager
async def mock_model() -> AsyncIterator[MockModel]:
    """Running inside the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.fakes.openai_server", "--port", "0", cwd=ROOT, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        base_url = (await process.stdout.readline()).decode().strip()
        async with httpx.AsyncClient(base_url=base_url.removesuffix("/v1"), trust_env=False) as client:
            yield MockModel(base_url, client)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def prompt_tokens(body: dict[str, Any]) -> int:
    """What system prompt and tools take of a request: a quarter of their characters."""
    system = [message["content"] for message in body["messages"] if message["role"] == "system"]
    return len("".join(system) + json.dumps(body.get("tools", []))) // 4

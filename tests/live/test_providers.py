"""Each provider whose key is in the environment answers one question."""

import os

import pytest

from gateway.config.machine import SystemClock
from gateway.domain.conversation.model import Prompt, Reply, UserMessage
from gateway.domain.settings import ModelSettings
from gateway.llm.client import build_client
from gateway.llm.vendors import VENDORS

pytestmark = pytest.mark.live

CASES = [
    pytest.param(
        vendor.model,
        marks=pytest.mark.skipif(not any(map(os.environ.get, vendor.keys)), reason=f"no {' or '.join(vendor.keys)}"),
    )
    for vendor in VENDORS
    if vendor.model
]


@pytest.mark.parametrize("model", CASES)
async def test_a_real_provider_answers(model: str) -> None:
    client = await build_client(ModelSettings(primary=model), os.environ, SystemClock())
    try:
        events = [event async for event in client.stream(Prompt((UserMessage("Answer with the word pong only."),)))]
    finally:
        await client.close()

    reply = events[-1]
    assert isinstance(reply, Reply)
    assert "pong" in reply.text.lower()
    assert reply.usage.output_tokens > 0

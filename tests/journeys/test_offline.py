"""A set-up with nothing but this machine. `make test-offline` runs it where there is no network at all."""

import os
import socket

import pytest

from tests.fakes.ollama import FakeOllama, Installed, end, piece
from tests.journeys.process import GatewayProcess, said

pytestmark = pytest.mark.thorough


async def test_a_local_model_answers_and_memory_is_searched(embedded: GatewayProcess) -> None:
    if os.environ.get("SUPACLAW_OFFLINE"):
        assert {name for _, name in socket.if_nameindex()} == {"lo"}
    answers = [[piece(content=f"Answer {n}."), end()] for n in range(8)]
    async with FakeOllama(Installed("qwen3:8b"), answers=answers) as ollama:
        embedded.configure(
            {"models": {"primary": "ollama/qwen3:8b", "providers": {"ollama": {"base_url": ollama.root}}}}
        )
        await embedded.start()
        first = said(await embedded.complete("My boat is called Nina.", key="1"))
        stored = await embedded.command("remember", "The boat is called Nina.")
        found = await embedded.command("search", "What is the boat called?", "--mode", "keyword")
        doctor = await embedded.command("doctor")
    assert first.startswith("Answer ")
    assert ollama.chats[0]["options"]["num_ctx"] > 4_096
    assert stored.code == 0, stored
    assert "Nina" in found.told, (stored, found)
    assert "ollama/qwen3:8b" in doctor.told, doctor

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from gateway.cli.main import build
from gateway.config.data.keys import read_keys
from gateway.llm import vendors
from tests.fakes.ollama import FakeOllama, Installed, end, piece
from tests.fakes.openai_server import FakeModels, Rule

KEY = "sk-proj-" + "a1B2" * 10


async def init(*typed: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, build(), ["init"], input="".join(f"{line}\n" for line in typed))


def configured(place: Path, models: FakeModels, prefix: str) -> None:
    config = {"models": {"providers": {prefix: {"base_url": models.base_url}}}}
    (place / "config.json").write_text(json.dumps(config))


async def test_a_key_is_asked_for_until_one_works(place: Path) -> None:
    async with FakeModels(Rule(status=401, code="invalid_api_key", times=1)) as models:
        configured(place, models, "openai")
        done = await init("sk-short", KEY, "", KEY, "openai/mini", "n", "n", "n")

    assert done.exit_code == 0, done.output
    assert "Model: guide/built-in" in done.output
    assert "whole API key" in done.output
    assert "OpenAI refuses this key" in done.output
    assert "Connected: OpenAI, openai/mini" in done.output
    assert "try_failed" not in done.output
    assert KEY not in done.output.replace(f"skip): {KEY}", ""), "but for the runner's echo of what was typed"
    assert read_keys(place / "data") == {"OPENAI_API_KEY": KEY}
    written = json.loads((place / "config.json").read_text())["models"]
    assert (written["primary"], written["providers"]["openai"]["api_key"]) == ("openai/mini", "$env:OPENAI_API_KEY")


async def test_the_provider_is_asked_for_where_the_key_does_not_tell(place: Path) -> None:
    async with FakeModels() as models:
        configured(place, models, "deepseek")
        done = await init("sk-" + "0f" * 16, "deepseek", "", "n", "n", "n")

    assert "Provider (openai, deepseek)" in done.output
    assert "Connected: DeepSeek, deepseek/deepseek-v4-pro" in done.output


async def test_everything_can_be_skipped(place: Path) -> None:
    done = await init("", "", "", "")

    assert done.exit_code == 0, done.output
    assert "`supaclaw up` starts the gateway" in done.output
    assert read_keys(place / "data") == {}


async def test_a_model_for_voice_notes_is_proposed_with_its_price(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "gsk_" + "a1B2" * 10)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    done = await init("", "n", "y", "n", "n", "n")

    assert "Transcribe voice notes with groq/whisper-large-v3-turbo ($0.04 an hour)?" in done.output
    assert "Connected: openai/gpt-4o-mini-transcribe" in done.output
    written = json.loads((place / "config.json").read_text())["models"]
    assert written["transcription"] == "openai/gpt-4o-mini-transcribe"


async def test_an_ollama_that_was_found_waits_for_a_yes(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    answers = [[piece(content="ready"), end()]]
    async with FakeOllama(Installed("qwen3:8b"), answers=answers) as server:
        found = (replace(each, base_url=server.root) if each.prefix == "ollama" else each for each in vendors.VENDORS)
        monkeypatch.setattr(vendors, "VENDORS", tuple(found))
        declined = await init("n", "", "", "", "")
        assert not server.chats
        accepted = await init("y", "", "", "")

    assert "Model: guide/built-in (auto: no provider key was found; Ollama on this machine offers" in declined.output
    assert "Use ollama/qwen3:8b on this machine?" in declined.output
    assert "Connected: ollama/qwen3:8b" in accepted.output
    assert json.loads((place / "config.json").read_text())["models"]["primary"] == "ollama/qwen3:8b"

"""Setup on the page: the owner's alone; nothing that was pasted is shown again."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.config.environment import Environment
from gateway.config.load import load
from gateway.config.machine import SystemClock
from gateway.flow.setup import Setup
from gateway.llm.client import Description
from gateway.logs import SecretMask
from tests.fakes.openai_server import FakeModels, Rule
from tests.web.conftest import BEARER, Running, Started

KEY = "sk-proj-" + "a1B2" * 10
GUIDE = Description("guide/built-in", "auto: no provider key was found", ("guide/built-in",), ())


@pytest.fixture
async def models() -> AsyncIterator[FakeModels]:
    async with FakeModels() as models:
        yield models


@pytest.fixture
async def started(running: Running, tmp_path: Path, models: FakeModels) -> AsyncIterator[Started]:
    provider = {"openai": {"base_url": models.base_url}}
    (tmp_path / "config.json").write_text(json.dumps({"models": {"providers": provider}}))
    environ = {"SUPACLAW_DATA": str(tmp_path / "data"), "SUPACLAW_CONFIG": str(tmp_path / "config.json")}
    environment = Environment.read(environ)
    setup = Setup(environment, environ, SystemClock(), lambda: load(environment.config, environ), SecretMask().add)
    started = await running.start(setup=setup, model=lambda: GUIDE)
    yield started
    await started.stop()


async def test_an_empty_gateway_opens_on_it_until_it_is_skipped(started: Started) -> None:
    async with started.web.sign_in() as browser:
        opened = await browser.get("/")
        assert (opened.status_code, opened.headers["location"]) == (303, "/setup")
        assert "Connect your agent" in (await browser.get("/setup")).text
        later = await browser.post("/setup/later")
        assert (later.status_code, later.headers["location"]) == (303, "/")
        assert (await browser.get("/")).status_code == 200


async def test_a_key_is_tested_and_never_shown(started: Started, models: FakeModels, tmp_path: Path) -> None:
    models.rules.append(Rule(status=401, code="invalid_api_key", message=f"Incorrect: {KEY}", times=1))
    async with started.web.sign_in() as browser:
        refused = await browser.post("/setup/model", data={"key": KEY})
        connected = await browser.post("/setup/model", data={"key": KEY})
        page = await browser.get("/setup")

    assert "OpenAI refuses this key" in refused.text
    assert "Connected" in connected.text
    assert KEY not in refused.text + connected.text + page.text
    assert (tmp_path / "data" / "keys" / "openai.env").read_text() == f"OPENAI_API_KEY='{KEY}'\n"
    assert "$env:OPENAI_API_KEY" in (tmp_path / "config.json").read_text()


async def test_an_ollama_that_was_found_is_one_press_away(running: Running, tmp_path: Path) -> None:
    environ = {"SUPACLAW_DATA": str(tmp_path / "data"), "SUPACLAW_CONFIG": str(tmp_path / "config.json")}
    environment = Environment.read(environ)
    setup = Setup(environment, environ, SystemClock(), lambda: load(environment.config, environ), SecretMask().add)
    started = await running.start(setup=setup, model=lambda: replace(GUIDE, offered="ollama/qwen3:8b"))
    async with started.web.sign_in() as browser:
        page = (await browser.get("/setup")).text
    await started.stop()
    assert 'name="model" value="ollama/qwen3:8b"' in page


async def test_a_key_that_may_be_of_two_is_asked_for(started: Started, models: FakeModels) -> None:
    async with started.web.sign_in() as browser:
        asked = await browser.post("/setup/model", data={"key": "sk-" + "0f" * 16})
    assert models.count == 0
    assert asked.text.count("<option") == 2
    assert "choose the provider" in asked.text


async def test_a_code_is_offered_for_the_owners_own_account(started: Started) -> None:
    async with started.web.sign_in() as browser:
        assert await started.web.backend.channels.pairing.offered() is None
        assert (await browser.post("/setup/code")).status_code == 204
        first = await started.web.backend.channels.pairing.offered()
        assert (await browser.post("/setup/code")).status_code == 204
    assert first
    assert await started.web.backend.channels.pairing.offered() not in (None, first)


async def test_a_model_for_voice_notes_is_chosen(running: Running, tmp_path: Path) -> None:
    environ = {"SUPACLAW_DATA": str(tmp_path / "data"), "SUPACLAW_CONFIG": str(tmp_path / "config.json")}
    environment, more = Environment.read(environ), {"GROQ_API_KEY": "k", "WHISPER_BASE_URL": "http://127.0.0.1:1"}
    setup = Setup(
        environment, environ | more, SystemClock(), lambda: load(environment.config, environ), SecretMask().add
    )
    started = await running.start(setup=setup, model=lambda: replace(GUIDE, active="groq/x"))
    async with started.web.sign_in() as browser:
        assert "Not transcribed" in (await browser.get("/setup")).text
        offers = (await browser.get("/setup/voice")).text
        assert "<bdi>groq/whisper-large-v3-turbo</bdi>, $0.04 an hour" in offers
        assert '<datalist id="setup-models">' in (await browser.get("/setup")).text
        assert "turbo" in (await browser.post("/setup/voice", data={"model": "groq/whisper-large-v3-turbo"})).text
        assert "Transcribed by groq/whisper-large-v3-turbo" in (await browser.get("/setup")).text
        assert "Name a model with its provider" in (await browser.post("/setup/voice", data={"model": "x"})).text
    await started.stop()


@pytest.mark.parametrize(
    "path", ["/setup/model", "/setup/server", "/setup/voice", "/setup/channels/telegram", "/setup/code", "/setup/later"]
)
async def test_only_the_owner_at_the_page_may(started: Started, models: FakeModels, path: str) -> None:
    body = {"key": KEY, "token": "424242:" + "A" * 35, "model": "openai/whisper-1", "address": models.base_url}
    web = started.web
    assert (await web.client.post(path, data=body)).status_code in {401, 403}
    assert (await web.client.post(path, data=body, headers=BEARER)).status_code in {401, 403}
    async with web.sign_in() as browser:
        elsewhere = await browser.post(path, data=body, headers={"Origin": "http://evil.example"})
    assert elsewhere.status_code == 403
    assert models.count == 0
    assert await web.backend.channels.pairing.offered() is None


async def test_an_unknown_messenger_is_told(started: Started) -> None:
    async with started.web.sign_in() as browser:
        answer = await browser.post("/setup/channels/os", data={})
        assert (answer.status_code, "unknown channel" in answer.text) == (200, True)

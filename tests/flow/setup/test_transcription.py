"""Models that are proposed for recordings: a server's on this machine first, then by price; used after a yes."""

import json
from collections.abc import Callable

import pytest
from aiohttp import web

from gateway.domain.errors import OwnerMustAct
from gateway.flow.setup import connect_transcription, transcription_offers
from tests.fakes.served import Served
from tests.flow.setup.conftest import Home

LISTED = (
    {"id": "speaches-ai/Kokoro-82M", "task": "text-to-speech"},
    {"id": "qwen3-8b"},
    {"id": "Systran/faster-small", "task": "automatic-speech-recognition"},
    {"id": "openai/whisper-large-v3"},
)
KEYS = {"OPENAI_API_KEY": "k", "GROQ_API_KEY": "k", "DEEPSEEK_API_KEY": "k", "MISTRAL_API_KEY": "k"}


def whisper() -> Served:
    async def models(_: web.Request) -> web.Response:
        return web.json_response({"data": LISTED})

    app = web.Application()
    app.router.add_get("/v1/models", models)
    return Served(app)


async def test_a_local_server_is_proposed_first_then_the_cheapest_of_the_keys(home: Callable[[str], Home]) -> None:
    own = home('{"models": {"providers": {"mistral": {"enabled": false}}}}')
    own.environ |= KEYS
    async with whisper() as server:
        own.environ["WHISPER_BASE_URL"] = server.root
        offers = await transcription_offers(own.setup)
    assert list(offers.items()) == [
        ("whisper/Systran/faster-small", "on this machine, where any program can listen on its port"),
        ("groq/whisper-large-v3-turbo", "$0.04 an hour"),
        ("openai/gpt-4o-mini-transcribe", "$0.18 an hour"),
    ]
    assert own.setup.config().models.transcription is None, "it waits for a yes"


async def test_what_is_chosen_is_saved_and_nothing_more_is_proposed(home: Callable[[str], Home]) -> None:
    own = home('{"models": {"providers": {"openai": {"api_key": "k", "base_url": "http://127.0.0.1:1"}}}}')
    own.environ |= {"GROQ_API_KEY": "k", "WHISPER_BASE_URL": "http://127.0.0.1:1"}
    assert list(await transcription_offers(own.setup)) == ["groq/whisper-large-v3-turbo"]
    with pytest.raises(OwnerMustAct, match="name a model with its provider"):
        connect_transcription(own.setup, "turbo")
    assert connect_transcription(own.setup, "groq/whisper-large-v3-turbo").who == "groq/whisper-large-v3-turbo"
    assert json.loads(own.config)["models"]["transcription"] == "groq/whisper-large-v3-turbo"
    assert await transcription_offers(own.setup) == {}

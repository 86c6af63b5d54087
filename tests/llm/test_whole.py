"""Answers that come whole, in the forms of many servers, through the real client over a real socket.

Each form names where it is documented or reported.
"""

import json
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from struct import pack
from typing import Any

import pytest
from aiohttp import web

from gateway.llm.client import ModelClient
from gateway.llm.errors import ErrorKind, ModelError
from gateway.llm.provider import Transcription
from tests.fakes.served import Served
from tests.llm.chain import client_for

TEA = "Buy green tea."
OGG = b"OggS" + bytes(1_000)
JSON, EVENTS, TEXT, PAGE = "application/json", "text/event-stream", "text/plain", "text/html"
LOGIN = "<!doctype html><html><head><title>Open WebUI</title><script>var a=1</script></head><body></body></html>"


@asynccontextmanager
async def answered(body: object, kind: str = JSON, status: int = 200, **headers: str) -> AsyncIterator[ModelClient]:
    """A client of a server that sends this body, whatever it is asked."""

    async def answer(_: web.Request) -> web.Response:
        sent = (
            body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else json.dumps(body).encode()
        )
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(body=sent, status=status, headers={"Content-Type": kind, **given})

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    async with Served(app) as server:
        client = await client_for(f"{server.root}/v1", "openai/x")
        yield client
        await client.close()


def events(*each: object) -> str:
    return "".join(f"data: {one if isinstance(one, str) else json.dumps(one)}\n\n" for one in each)


def delta(text: str) -> dict[str, str]:
    return {"type": "transcript.text.delta", "delta": text}


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"text": TEA}, JSON),
        ({"text": TEA}, PAGE),  # behind proxies that call all they send a page
        (f"{TEA}\n", TEXT),  # openai-openapi #361: response_format text
        (json.dumps(TEA), JSON),  # whisperx-api-server #4
        (b"\xef\xbb\xbf" + json.dumps({"text": TEA}).encode(), JSON),
        ({"text": None, "segments": [{"text": " Buy"}, {"text": " green tea."}]}, JSON),
        ({"segments": [{"id": 0, "text": " Buy green"}, {"id": 1, "text": " tea."}]}, JSON),
        ({"segments": {"segments": [{"text": " Buy green tea."}]}}, JSON),  # whisperx-api-server #4
        ({"task": "transcribe", "duration": 1.7, "text": TEA, "segments": [], "words": None}, JSON),  # speaches #86
        ({"transcript": TEA}, JSON),
        ({"transcription": TEA}, JSON),  # worker-faster_whisper #41
        ({"text": TEA, "duration": "1.7s", "usage": "none"}, JSON),
        ({"text": TEA, "usage": []}, JSON),
        ({"text": TEA, "duration": -1, "usage": {"input_tokens": "n/a"}}, JSON),
        (events(delta("Buy "), delta("green tea."), {"type": "transcript.text.done", "text": TEA}, "[DONE]"), EVENTS),
        (events({"text": "Buy"}, {"text": "green tea."}), EVENTS),  # faster-whisper-server, segment by segment
        ('{"text": "Buy"}\n{"text": "green tea."}\n', "application/x-ndjson"),
    ],
)
async def test_words_of_a_recording_are_read_in_every_form(body: object, kind: str) -> None:
    async with answered(body, kind) as client:
        reply = await client.transcribe(["openai/whisper-1"], "voice.ogg", "audio/ogg", OGG)
    assert reply.text == TEA
    assert reply.usage.cost_usd > 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        None,
        " [BLANK_AUDIO]\n",  # whisper.cpp
        "[Music] (wind blowing) ♪",
        "*coughs* ...",
        "Subtitles by the Amara.org community",
        "Ondertitels ingediend door de Amara.org gemeenschap",
        "Субтитры сделал DimaTorzok",
        "Thank you so much for watching!",
        "ご視聴ありがとうございました。",
    ],
)
async def test_silence_is_not_taken_for_words(text: str | None) -> None:
    async with answered({"text": text}) as client:
        assert (await client.transcribe(["openai/whisper-1"], "voice.ogg", "audio/ogg", OGG)).text == ""


@pytest.mark.parametrize("text", ["[laughs] Buy tea", "Thank you.", "Amara", "Thanks for watching the dog (again)."])
def test_words_beside_marks_stay(text: str) -> None:
    assert Transcription(text=text).text == text


@pytest.mark.parametrize(
    ("body", "kind", "told", "error"),
    [
        (
            {"error": {"message": "Invalid audio file.", "code": 400}},
            JSON,
            "Invalid audio file.",
            ErrorKind.BAD_REQUEST,
        ),
        (  # vLLM before 0.10
            {"object": "error", "message": "Maximum clip duration (30s) exceeded.", "code": 400},
            JSON,
            "Maximum clip duration (30s) exceeded.",
            ErrorKind.BAD_REQUEST,
        ),
        ({"error": "failed to read WAV file"}, JSON, "failed to read WAV file", ErrorKind.SERVER),  # whisper.cpp #1614
        ({"detail": "Model is loading"}, TEXT, "Model is loading", ErrorKind.SERVER),
        (events({"error": {"message": "model crashed"}}), EVENTS, "model crashed", ErrorKind.NETWORK),
        (events(delta("Buy ")), EVENTS, "the server sent something unknown, not an answer: {", ErrorKind.SERVER),
        (LOGIN, PAGE, "the server sent a web page, not an answer: Open WebUI", ErrorKind.SERVER),
        (LOGIN, TEXT, "the server sent a web page, not an answer: Open WebUI", ErrorKind.SERVER),
        ("upstream failed", JSON, "upstream failed", ErrorKind.SERVER),
        ({}, JSON, "the server sent something unknown, not an answer: {}", ErrorKind.SERVER),
        ("", TEXT, "the server sent nothing, not an answer", ErrorKind.SERVER),
    ],
)
async def test_what_is_no_transcript_is_told_as_what_it_is(
    body: object, kind: str, told: str, error: ErrorKind
) -> None:
    async with answered(body, kind) as client:
        provider = client._services.providers.of("openai/whisper-1")
        with pytest.raises(ModelError) as caught:
            await provider.transcribe("openai/whisper-1", "voice.ogg", "audio/ogg", OGG)
    assert (caught.value.kind, str(caught.value)[: len(told)]) == (error, told)


@pytest.mark.parametrize("encoding", ["br", "zstd"])
@pytest.mark.parametrize("status", [200, 401])
async def test_a_compression_that_nobody_asked_for_is_named(encoding: str, status: int) -> None:
    async with answered(b"\x0b\x02\x80{}\x03", status=status, Content_Encoding=encoding) as client:
        with pytest.raises(ModelError, match=rf"the answer is compressed \({encoding}\), which was not asked for"):
            await client.speak("openai/tts-1", "alloy", "Hello")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (OGG, JSON),
        (OGG, "application/octet-stream"),
        ({"audio": b64encode(OGG).decode()}, JSON),  # tt-inference-server #1720
        ({"audio": f"data:audio/ogg;base64,{b64encode(OGG).decode()}"}, JSON),
        ({"id": "a" * 64, "data": {"audioContent": b64encode(OGG).decode()}}, JSON),
    ],
)
async def test_a_recording_is_read_in_every_form(body: object, kind: str) -> None:
    async with answered(body, kind) as client:
        sound, _ = await client.speak("openai/tts-1", "alloy", "Hello")
    assert sound == OGG


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"error": {"message": "voice not found", "request_id": "a" * 64}}, "voice not found"),
        ({"base_resp": {"status_code": 1004, "status_msg": "login fail"}}, "login fail"),  # MiniMax
        ({"url": "https://x.example/a.mp3"}, "the server sent something unknown, not an answer: {"),
        (LOGIN, "the server sent a web page, not an answer: Open WebUI"),
        (b"", "the server sent nothing, not an answer"),
    ],
)
async def test_what_is_no_recording_is_told_as_what_it_is(body: object, told: str) -> None:
    async with answered(body, "audio/mpeg") as client:
        with pytest.raises(ModelError) as caught:
            await client.speak("openai/tts-1", "alloy", "Hello")
    assert str(caught.value).startswith(told)


ONE, OTHER = [1.0, 2.0], [2.0, 1.0]


def base64(*numbers: float) -> str:
    return b64encode(pack(f"<{len(numbers)}f", *numbers)).decode()


@pytest.mark.parametrize(
    "body",
    [
        {"data": [{"index": 1, "embedding": OTHER}, {"index": 0, "embedding": ONE}]},
        {"data": [{"index": 0, "embedding": base64(*ONE)}, {"index": 1, "embedding": base64(*OTHER)}]},  # genkit #6317
        {"data": [{"embedding": ONE}, {"embedding": OTHER}]},
        {"data": [{"index": None, "embedding": ONE}, {"index": None, "embedding": OTHER}]},
        {"data": [{"index": 0, "embedding": ONE}, {"index": 0, "embedding": OTHER}]},
        {"embeddings": [ONE, OTHER]},  # Ollama's /api/embed
        {"embeddings": {"float": [ONE, OTHER]}},  # Cohere's v2
        [ONE, OTHER],  # TEI's /embed
        [{"index": 0, "embedding": ONE}, {"index": 1, "embedding": OTHER}],  # llama.cpp's /embedding
    ],
)
async def test_vectors_are_read_in_every_form(body: Any) -> None:
    async with answered(body) as client:
        assert [list(each) for each in await client.embed("openai/e", ["tea", "rain"])] == [ONE, OTHER]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"error": {"message": "No endpoints found for it", "code": 404}}, "No endpoints found for it"),  # OpenRouter
        ({"object": "list", "data": None}, "the server sent something unknown, not an answer: {"),
        ({"data": [{"index": 0, "embedding": None}]}, "the server sent something unknown, not an answer: {"),
        ({"data": [{"index": 0, "embedding": "not base64"}]}, "the server sent something unknown, not an answer: {"),
        (LOGIN, "the server sent a web page, not an answer: Open WebUI"),
    ],
)
async def test_what_are_no_vectors_is_told_as_what_it_is(body: object, told: str) -> None:
    async with answered(body) as client:
        with pytest.raises(ModelError) as caught:
            await client.embed("openai/e", ["tea"])
    assert str(caught.value).startswith(told)

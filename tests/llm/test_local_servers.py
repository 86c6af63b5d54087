"""Models of local servers, as these describe them."""

import json

import pytest
from aiohttp import web

from gateway.llm.local_servers import LEAST_WINDOW, MOST_WINDOW, LocalModel, look_up, ollama_models
from gateway.llm.vendors import Endpoint, vendor
from tests.fakes.ollama import FakeOllama, Installed
from tests.fakes.served import Served

GB = 10**9
HUGE = {"block_count": 10**6, "attention.head_count_kv": 8, "attention.key_length": 128}


async def test_auto_prefers_what_can_call_tools_and_fits_and_never_what_answers_nobody() -> None:
    models = (
        Installed("bge-m3:latest", capabilities=["embedding"]),
        Installed("moondream:latest", capabilities=["completion", "vision"]),
        Installed("gemma3:270m", GB // 4, ["completion"]),
        Installed("qwen3:8b", 5 * GB),
        Installed("qwen3:1.7b", GB),
        Installed("huge:405b", 230_000 * GB),
        Installed("gpt-oss:120b-cloud", 1),
        Installed("far:latest", 1, remote_host="https://ollama.com"),
    )
    async with FakeOllama(*models) as server:
        found = await ollama_models(server.root)
    assert found == ("qwen3:8b", "qwen3:1.7b", "huge:405b", "moondream:latest", "gemma3:270m")


async def test_an_old_ollama_tells_no_capabilities() -> None:
    models = (Installed("nomic-embed-text:latest", capabilities=None), Installed("llama3:latest", capabilities=None))
    async with FakeOllama(*models) as server:
        assert await ollama_models(server.root) == ("llama3:latest",)


@pytest.mark.parametrize(
    ("model", "own", "loaded", "window"),
    [
        (Installed("m:latest"), None, None, MOST_WINDOW),
        (Installed("m:latest", window=8_192), None, None, 8_192),
        (Installed("m:latest"), 6_000, None, 6_000),
        (Installed("m:latest"), 99_000, None, 40_960),
        (Installed("m:latest"), None, 40_960, 40_960),
        (
            Installed("m:latest", facts=HUGE),
            None,
            None,
            LEAST_WINDOW,
        ),
    ],
)
async def test_a_window_is_what_the_model_the_machine_and_the_owner_allow(
    model: Installed, own: int | None, loaded: int | None, window: int
) -> None:
    async with FakeOllama(model) as server:
        server.loaded = {"m:latest": loaded} if loaded else {}
        found = await look_up(Endpoint(vendor("ollama"), base_url=f"{server.root}/v1", window=own), "ollama/m")
        nobody = await look_up(Endpoint(vendor("ollama"), base_url=server.root), "ollama/other")
    assert (found, nobody) == (LocalModel(window, loaded, tools=True, vision=False), None)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/api/v0/models", {"data": [{"id": "q", "loaded_context_length": 12_000, "max_context_length": 32_000}]}),
        ("/v1/models", {"data": [{"id": "other"}, {"id": "q", "max_model_len": 12_000}]}),
        ("/props", {"default_generation_settings": {"n_ctx": 12_000}}),
    ],
)
async def test_other_servers_tell_their_windows(path: str, answer: object) -> None:
    async def tell(_: web.Request) -> web.Response:
        return web.Response(body=json.dumps(answer))

    app = web.Application()
    app.router.add_get(path, tell)
    async with Served(app) as server:
        address = f"{server.root}/v1"
        found = await look_up(Endpoint(vendor("mybox"), base_url=address), "mybox/q")
        owners = await look_up(Endpoint(vendor("mybox"), base_url=address, window=9_000), "mybox/q")
    assert (found, owners) == (LocalModel(12_000), LocalModel(9_000))


async def test_a_server_elsewhere_is_not_asked() -> None:
    assert await look_up(Endpoint(vendor("openai")), "gpt-4o") is None

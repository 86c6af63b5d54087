"""Models of local servers, as these describe them."""

import json

import pytest
from aiohttp import web
from pydantic import SecretStr

from gateway.domain.conversation.model import Prompt, UserMessage
from gateway.llm.local_servers import (
    LEAST_WINDOW,
    MOST_WINDOW,
    LocalModel,
    cuts_prompts,
    look_up,
    ollama_models,
    served_models,
    served_transcribers,
)
from gateway.llm.vendors import Endpoint, vendor
from tests.fakes.ollama import FakeOllama, Installed
from tests.fakes.served import Served

GB = 10**9
UNFIT = (
    "nomic-embed-text:latest",
    "bge-m3",
    "Qwen3-Reranker-4B",
    "olmOCR-7B",
    "smollm2:135m",
    "qwen3-0.6b",
    "e5-large",
)
HUGE = {"block_count": 10**6, "attention.head_count_kv": 8, "attention.key_length": 128}


def serving(path: str, answer: object) -> Served:
    async def tell(_: web.Request) -> web.Response:
        return web.Response(body=json.dumps(answer))

    app = web.Application()
    app.router.add_get(path, tell)
    return Served(app)


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
        found = await ollama_models(Endpoint(vendor("ollama"), base_url=server.root))
    assert found == ("qwen3:8b", "qwen3:1.7b", "huge:405b", "moondream:latest", "gemma3:270m")


async def test_an_old_ollama_tells_no_capabilities() -> None:
    models = (*(Installed(name, capabilities=None) for name in UNFIT), Installed("llama3:latest", capabilities=None))
    async with FakeOllama(*models) as server:
        assert await ollama_models(Endpoint(vendor("ollama"), base_url=server.root)) == ("llama3:latest",)


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
    assert (found, nobody) == (LocalModel(window, loaded, vision=False), None)


SHOWN = {"general.architecture": "qwen3", "qwen3.context_length": 40_960, "qwen3.attention.key_length": 128}


@pytest.mark.parametrize(
    "facts",
    [
        {**SHOWN, "general.architecture": None},
        {**SHOWN, "general.architecture": "Qwen3"},
        {**SHOWN, "qwen3.context_length": "40960"},
        {**SHOWN, "qwen3.context_length": 40_960.0},
        {**SHOWN, "qwen3.block_count": 36, "qwen3.attention.head_count_kv": [0, 8, 0], "tokenizer.ggml.tokens": ["a"]},
    ],
)
async def test_the_facts_of_a_model_may_have_other_types(facts: dict[str, object]) -> None:
    async def show(_: web.Request) -> web.Response:
        return web.json_response({"model_info": facts, "capabilities": ["completion", None, "vision"]})

    app = web.Application()
    app.router.add_post("/api/show", show)
    async with Served(app) as server:
        found = await look_up(Endpoint(vendor("ollama"), base_url=server.root), "ollama/m")
    assert found == LocalModel(MOST_WINDOW, vision=True)


@pytest.mark.parametrize(
    "odd", [{"size": None}, {"size": "5 GB"}, {"remote_host": None}, {"details": "x"}, {"type": 3}, {"task": []}]
)
async def test_an_odd_fact_hides_no_model(odd: dict[str, object]) -> None:
    async with serving("/api/tags", {"models": [{"name": "qwen3:8b", **odd}]}) as server:
        assert await ollama_models(Endpoint(vendor("ollama"), base_url=server.root)) == ("qwen3:8b",)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/api/v0/models", {"data": [{"id": "q", "loaded_context_length": 12_000, "max_context_length": 32_000}]}),
        ("/v1/models", {"data": [{"id": "other"}, {"id": "q", "max_model_len": 12_000}]}),
        ("/v1/models", {"data": [{"id": "q", "max_model_len": -1}, {"id": "q", "max_model_len": 12_000}]}),
        ("/props", {"default_generation_settings": {"n_ctx": 12_000}}),
        ("/v1/models", {"data": [{"id": "q", "size": None, "details": [], "meta": {"n_ctx": 12_000}}]}),
        ("/v1/models", {"data": [{"id": "q", "capabilities": "tools", "parameters": {"max_seq_len": "12000"}}]}),
    ],
)
async def test_other_servers_tell_their_windows(path: str, answer: object) -> None:
    async with serving(path, answer) as server:
        address = f"{server.root}/v1"
        found = await look_up(Endpoint(vendor("mybox"), base_url=address), "mybox/q")
        owners = await look_up(Endpoint(vendor("mybox"), base_url=address, window=9_000), "mybox/q")
    assert (found, owners) == (LocalModel(12_000), LocalModel(9_000))


@pytest.mark.parametrize(
    ("path", "listed", "found"),
    [
        (
            "/api/v0/models",
            [
                {"id": "later", "type": "llm", "state": "not-loaded", "capabilities": ["tool_use"]},
                {"id": "words", "type": "vlm", "state": "loaded"},
                {"id": "vectors", "type": "embeddings"},
                {"id": "now-0.6b", "type": "llm", "state": "loaded", "capabilities": ["tool_use"]},
            ],
            ("lm_studio/now-0.6b", "lm_studio/later", "lm_studio/words"),
        ),
        (
            "/v1/models",
            [{"id": name} for name in (*UNFIT, "qwen2.5-7b-instruct-1m", "unsloth/gemma-3-12b")],
            ("lm_studio/qwen2.5-7b-instruct-1m", "lm_studio/unsloth/gemma-3-12b"),
        ),
        ("/v1/models", {"models": "of something else"}, ()),
    ],
)
async def test_auto_finds_the_models_of_other_servers(path: str, listed: object, found: tuple[str, ...]) -> None:
    async with serving(path, {"data": listed}) as server:
        assert await served_models(Endpoint(vendor("lm_studio"), base_url=f"{server.root}/v1")) == found


MODELS: list[dict[str, object]] = [{"id": "qwen3-8b", "max_model_len": 9_000}, {"id": "whisper-1"}]


@pytest.mark.parametrize(
    "listed",
    [
        {"object": "list", "data": MODELS},
        MODELS,  # one-api #128, jan #1669
        {"models": [{"name": "qwen3-8b", "context_length": 9_000}, {"model": "whisper-1"}]},
        {"data": [{**each, "type": None, "state": None, "task": None, "capabilities": None} for each in MODELS]},
        {"data": [{"id": None}, {"name": 7}, "words", *MODELS]},
        {"data": [*MODELS, {"id": "tiny-words", "max_model_len": "many", "capabilities": {"completion": True}}][:2]},
        {"data": [{"id": "qwen3-8b", "context_window": 9_000}, MODELS[1]]},
    ],
)
async def test_models_are_read_from_lists_in_every_form(listed: object) -> None:
    async with serving("/v1/models", listed) as server:
        endpoint = Endpoint(vendor("vllm"), base_url=f"{server.root}/v1")
        found = (
            await served_models(endpoint),
            await served_transcribers(endpoint),
            await look_up(endpoint, "vllm/qwen3-8b"),
        )
    assert found == (("vllm/qwen3-8b",), ("vllm/whisper-1",), LocalModel(9_000))


@pytest.mark.parametrize(
    "listed", [{"object": "list", "data": None}, {"error": "model name is empty"}, "<html>", 7, None]
)
async def test_what_is_no_list_has_no_models(listed: object) -> None:
    async with serving("/v1/models", listed) as server:
        endpoint = Endpoint(vendor("vllm"), base_url=f"{server.root}/v1")
        assert (await served_models(endpoint), await served_transcribers(endpoint)) == ((), ())


async def test_a_server_that_wants_its_key_for_its_list_gets_it() -> None:
    """As vLLM with `--api-key`: without the list, prompts would be made for 8,192 tokens."""

    async def tell(request: web.Request) -> web.Response:
        may = request.headers.get("Authorization") == "Bearer sk-1"
        return web.json_response({"data": MODELS} if may else {"error": "Unauthorized"}, status=200 if may else 401)

    app = web.Application()
    app.router.add_get("/v1/models", tell)
    async with Served(app) as server:
        address = f"{server.root}/v1"
        found = await look_up(Endpoint(vendor("vllm"), SecretStr("sk-1\n"), address), "vllm/qwen3-8b")
        nothing = await look_up(Endpoint(vendor("vllm"), base_url=address), "vllm/qwen3-8b")
    assert (found, nothing) == (LocalModel(9_000), None)


async def test_a_port_without_a_server_has_no_models() -> None:
    assert await served_models(Endpoint(vendor("lm_studio"), base_url="http://127.0.0.1:1")) == ()


async def test_a_server_elsewhere_is_not_asked() -> None:
    assert await look_up(Endpoint(vendor("openai")), "gpt-4o") is None


@pytest.mark.parametrize(
    ("sent", "counted", "cut"),
    [
        ((5_000, 7_000), (4_096, 4_096), True),
        ((5_000, 7_000), (4_096, 4_000), True),
        ((20_000,), (4_096,), True),
        ((5_000, 5_200), (4_096, 4_096), False),
        ((5_000, 7_000), (4_096, 4_800), False),
        ((5_000, 7_000), (4_096, 1_500), False),
        ((7_000, 5_000), (4_096, 4_096), False),
        ((20_000,), (6_900,), False),
        ((20_000,), (300,), False),
    ],
    ids=["stuck", "fewer", "far too few", "hardly grown", "grown", "only new ones", "shorter", "arabic", "cached"],
)
def test_a_server_that_cuts_is_told_from_one_that_counts_in_another_way(
    sent: tuple[int, ...], counted: tuple[int, ...], *, cut: bool
) -> None:
    endpoint, messages = Endpoint(vendor("vllm")), tuple(UserMessage(str(place)) for place in range(3))
    prompts = [Prompt(messages[: place + 1]) for place in range(len(sent))]
    found = [cuts_prompts(endpoint, "here", *each) for each in zip(prompts, sent, counted, strict=True)]
    assert found[-1] == cut


def test_another_conversation_tells_nothing() -> None:
    endpoint = Endpoint(vendor("vllm"))
    assert not cuts_prompts(endpoint, "here", Prompt((UserMessage("a"),)), 5_000, 4_096)
    assert not cuts_prompts(endpoint, "here", Prompt((UserMessage("b"),)), 7_000, 4_096)

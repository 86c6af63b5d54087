import asyncio

import pytest
from pydantic import SecretStr

from gateway.domain.settings import ProviderSettings
from gateway.llm.auto import GUIDE, choose_model
from gateway.llm.local_servers import ollama_models
from gateway.llm.vendors import Endpoint, split_model, vendor
from tests.fakes.openai_server import FakeModels


@pytest.mark.parametrize(
    ("variable", "prefix"),
    [
        ("OPENAI_API_KEY", "openai"),
        ("ANTHROPIC_API_KEY", "anthropic"),
        ("GEMINI_API_KEY", "gemini"),
        ("GOOGLE_API_KEY", "gemini"),
        ("OPENROUTER_API_KEY", "openrouter"),
        ("GROQ_API_KEY", "groq"),
        ("DEEPSEEK_API_KEY", "deepseek"),
        ("MISTRAL_API_KEY", "mistral"),
        ("XAI_API_KEY", "xai"),
    ],
)
def test_a_key_in_the_environment_decides(variable: str, prefix: str) -> None:
    choice = choose_model({variable: "k"}, {}, ["ollama/llama3"])
    assert split_model(choice.model)[0] == prefix
    assert variable in choice.reason


def test_the_order_is_fixed() -> None:
    keys = {"XAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GROQ_API_KEY": "k", "OPENAI_API_KEY": ""}
    assert choose_model(keys, {}, ()).model.startswith("anthropic/")


def test_a_key_in_the_config_counts_and_is_not_shown() -> None:
    choice = choose_model({}, {"groq": ProviderSettings(api_key=SecretStr("hunter2"))}, ())
    assert choice.model.startswith("groq/")
    assert "models.providers.groq.api_key" in choice.reason
    assert "hunter2" not in choice.reason


@pytest.mark.parametrize(
    ("environ", "providers", "known"),
    [({"OLLAMA_HOST": "here"}, {}, False), ({}, {"ollama": ProviderSettings()}, False), ({}, {}, True)],
)
def test_without_keys_a_local_ollama_answers(
    environ: dict[str, str], providers: dict[str, ProviderSettings], known: bool
) -> None:
    assert choose_model(environ, providers, ["jan/j", "ollama/qwen3:8b"], known_ollama=known).model == "ollama/qwen3:8b"


def test_one_that_is_only_found_waits_for_the_owners_yes() -> None:
    choice = choose_model({}, {}, ["lm_studio/qwen3-8b", "vllm/other"])
    assert (choice.model, choice.offered) == (GUIDE, "lm_studio/qwen3-8b")
    assert "say yes to it in Setup" in choice.reason


def test_without_anything_the_guide_answers() -> None:
    assert choose_model({}, {}, []).model == GUIDE


async def test_a_running_ollama_tells_its_models() -> None:
    async with FakeModels() as server:
        server.ollama_models = ("qwen3:8b", "llama3")
        assert await ollama_models(Endpoint(vendor("ollama"), base_url=server.url)) == ("qwen3:8b", "llama3")
    assert await ollama_models(Endpoint(vendor("ollama"), base_url=server.url)) == ()


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 500 No\r\n\r\n{}", b"HTTP/1.0 200 OK\r\n\r\nnot json", b"\xff\xfe"])
async def test_anything_else_is_no_ollama(answer: bytes) -> None:
    async def reply(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    async with await asyncio.start_server(reply, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await ollama_models(Endpoint(vendor("ollama"), base_url=f"http://127.0.0.1:{port}")) == ()


async def test_a_silent_server_is_not_waited_for() -> None:
    gone = asyncio.Event()

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        gone.set()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert await ollama_models(Endpoint(vendor("ollama"), base_url=f"http://127.0.0.1:{port}"), timeout=0.05) == ()
        await gone.wait()


async def test_nonsense_for_an_address_is_no_ollama() -> None:
    assert await ollama_models(Endpoint(vendor("ollama"), base_url="http://127.0.0.1:notaport")) == ()

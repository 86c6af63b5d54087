"""One configuration becomes one client."""

from dataclasses import replace

import pytest

from gateway.domain.conversation.model import Model
from gateway.domain.settings import ModelSettings
from gateway.llm.auto import GUIDE
from gateway.llm.client import build_client
from gateway.llm.vendors import LOCAL_SERVERS
from tests.fakes.openai_server import FakeModels, Rule
from tests.llm.chain import HELLO, FakeClock, client_for, collect, last_reply

NOWHERE = {"OLLAMA_HOST": "127.0.0.1:1"}


def settings(**fields: object) -> ModelSettings:
    return ModelSettings.model_validate(fields)


async def test_the_configured_chain_is_used_as_it_stands() -> None:
    client = await build_client(settings(primary="openai/a", fallbacks=["b", "openai/a"]), {}, FakeClock())
    described = client.describe()
    assert (described.active, described.chain) == ("openai/a", ("openai/a", "b"))
    assert "models.primary" in described.why


async def test_auto_takes_what_is_connected() -> None:
    client = await build_client(settings(), {"GROQ_API_KEY": "k"}, FakeClock())
    assert client.describe().active.startswith("groq/")


async def test_auto_finds_a_local_ollama_and_talks_to_it() -> None:
    async with FakeModels(Rule(text="from ollama")) as server:
        server.ollama_models = ("qwen3:8b",)
        client = await build_client(settings(), {"OLLAMA_HOST": server.url}, FakeClock())
        reply = last_reply(await collect(client.stream(HELLO)))
        await client.close()
    assert (reply.model, reply.text, server.bodies[0]["model"]) == ("ollama/qwen3:8b", "from ollama", "qwen3:8b")


async def test_auto_finds_other_local_servers_and_offers_those_that_are_not_configured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def known() -> bool:
        return True

    async with FakeModels() as server:
        local = tuple(replace(each, base_url=server.url) for each in LOCAL_SERVERS if each.prefix != "ollama")
        monkeypatch.setattr("gateway.llm.vendors.VENDORS", local)
        jan = settings(providers={"jan": {"base_url": server.url}})
        made = (settings(), jan)
        found = [await build_client(each, NOWHERE, FakeClock(), knows_ollama=known) for each in made]
        off = settings(providers={each.prefix: {"enabled": False} for each in local})
        found.append(await build_client(off, NOWHERE, FakeClock()))
    described = [(client.describe().active, client.describe().offered) for client in found]
    assert described == [(GUIDE, "vllm/mock-model"), ("jan/mock-model", ""), (GUIDE, "")]


async def test_without_anything_the_guide_answers_for_free() -> None:
    client: Model = await build_client(settings(), NOWHERE, FakeClock())
    reply = last_reply(await collect(client.stream(HELLO)))
    assert (reply.model, reply.usage.cost_usd) == (GUIDE, 0)
    assert "No model is connected" in reply.text


async def test_a_fallback_is_better_than_the_guide() -> None:
    client = await build_client(settings(fallbacks=["mybox/x"]), NOWHERE, FakeClock())
    assert client.describe().chain == ("mybox/x",)
    assert "models.fallbacks" in client.describe().why


async def test_a_call_may_cost_what_the_dearest_model_of_the_chain_takes() -> None:
    client = await build_client(settings(primary="gpt-4o", fallbacks=["ollama/unheard-of"]), {}, FakeClock())
    highest = client.highest(HELLO)
    assert highest.usd > 4096 * 1e-5
    assert highest.tokens > 4096


@pytest.mark.parametrize(
    ("chain", "budget"),
    [
        (["gpt-4o"], 128_000 - 4096),
        (["gpt-4o", "ollama/unheard-of"], 6144),
        (["groq/openai/gpt-oss-120b"], 131_072 - 4096),
    ],
)
async def test_a_prompt_must_fit_the_smallest_model(chain: list[str], budget: int) -> None:
    client = await build_client(settings(primary=chain[0], fallbacks=chain[1:]), {}, FakeClock())
    assert client.prompt_budget() == budget


async def test_another_model_can_lead_the_same_chain() -> None:
    client = await build_client(settings(primary="gpt-4o", fallbacks=["ollama/unheard-of"]), {}, FakeClock())
    assert [
        led and led.describe().chain
        for led in (client.with_primary(None), client.with_primary("b"), client.with_primary("gpt-4o"))
    ] == [
        ("gpt-4o", "ollama/unheard-of"),
        ("b", "gpt-4o", "ollama/unheard-of"),
        ("gpt-4o", "ollama/unheard-of"),
    ]


async def test_the_guide_leads_nothing() -> None:
    client = await build_client(settings(), NOWHERE, FakeClock())
    assert client.with_primary(None) is None
    led = client.with_primary("mybox/x")
    assert led is not None
    assert led.describe().chain == ("mybox/x",)


async def test_a_warm_client_answers_like_a_cold_one() -> None:
    async with FakeModels() as server:
        client = await client_for(server.base_url, "openai/x")
        await client.warm()
        assert last_reply(await collect(client.stream(HELLO))).text == "ok"
        await client.close()

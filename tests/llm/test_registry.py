import pytest

from gateway.domain.settings import ProviderSettings
from gateway.llm.provider import Providers, module_of
from gateway.llm.providers.guide import Guide
from gateway.llm.providers.openai import OpenAIProvider
from gateway.llm.vendors import VENDORS, endpoint_of

MYBOX = {"mybox": ProviderSettings(base_url="http://127.0.0.1:1")}


@pytest.mark.parametrize(
    ("prefix", "module"),
    [
        ("openai", "openai"),
        ("openrouter", "openai"),
        ("ollama", "openai"),
        ("hosted_vllm", "openai"),
        ("mybox", "openai"),
        ("anthropic", "litellm"),
        ("gemini", "litellm"),
        ("together_ai", "litellm"),
        ("guide", "guide"),
        ("../evil", "litellm"),
    ],
)
def test_which_file_serves_a_prefix(prefix: str, module: str) -> None:
    assert module_of(endpoint_of(prefix, MYBOX, {})) == module


def test_everything_can_be_sent_through_litellm_but_the_built_in_ones() -> None:
    modules = [module_of(endpoint_of(prefix, {}, {}), "litellm") for prefix in ("openai", "ollama", "guide")]
    assert modules == ["litellm", "litellm", "guide"]


def test_every_known_provider_is_served() -> None:
    assert {module_of(endpoint_of(vendor.prefix, {}, {})) for vendor in VENDORS} == {"openai", "litellm"}


async def test_models_of_one_prefix_share_a_provider() -> None:
    providers = Providers({}, {"OPENAI_API_KEY": "hunter2"})
    assert providers.of("openai/a") is providers.of("b")
    assert isinstance(providers.of("openai/a"), OpenAIProvider)
    assert isinstance(providers.of("guide/built-in"), Guide)
    assert providers.secrets("b") == ("hunter2",)
    assert providers.secrets("guide/built-in") == ()
    await providers.close()

import pytest
from pydantic import SecretStr

from gateway.domain.settings import ProviderSettings
from gateway.llm.auto import GUIDE, choose
from gateway.llm.catalog import split


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
    choice = choose({variable: "k"}, {}, ["llama3"])
    assert split(choice.model)[0] == prefix
    assert variable in choice.reason


def test_the_order_is_fixed() -> None:
    keys = {"XAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k", "GROQ_API_KEY": "k", "OPENAI_API_KEY": ""}
    assert choose(keys, {}, ()).model.startswith("anthropic/")


def test_a_key_in_the_config_counts_and_is_not_shown() -> None:
    choice = choose({}, {"groq": ProviderSettings(api_key=SecretStr("hunter2"))}, ())
    assert choice.model.startswith("groq/")
    assert "models.providers.groq.api_key" in choice.reason
    assert "hunter2" not in choice.reason


def test_without_keys_a_local_ollama_answers() -> None:
    assert choose({}, {}, ["nomic-embed-text", "qwen3:8b", "llama3"]).model == "ollama/qwen3:8b"


def test_without_anything_the_guide_answers() -> None:
    assert choose({}, {}, []).model == choose({}, {}, ["nomic-embed-text"]).model == GUIDE

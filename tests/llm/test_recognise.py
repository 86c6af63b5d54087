import pytest

from gateway.domain.errors import OwnerMustAct
from gateway.llm.recognise import WITH_KEYS, UnknownVendor, vendor_of

KEYS = {
    "sk-proj-" + "a1B2" * 20: "openai",
    "sk-" + "aB3d" * 12: "openai",
    "sk-ant-api03-" + "a1B2" * 20: "anthropic",
    "AIza" + "aB3_-" * 7: "gemini",
    "sk-or-v1-" + "0f" * 32: "openrouter",
    "gsk_" + "aB3d" * 13: "groq",
    "xai-" + "aB3d" * 20: "xai",
    "aB3d" * 8: "mistral",
}


@pytest.mark.parametrize(("key", "prefix"), list(KEYS.items()))
def test_a_key_tells_whose_it_is(key: str, prefix: str) -> None:
    assert vendor_of(key).prefix == prefix


def test_a_shape_that_two_have_is_asked_for() -> None:
    key = "sk-" + "0f" * 16
    with pytest.raises(UnknownVendor, match="OpenAI or DeepSeek; choose") as asked:
        vendor_of(key)

    assert [each.prefix for each in asked.value.vendors] == ["openai", "deepseek"]
    assert vendor_of(key, "deepseek").prefix == "deepseek"


def test_a_shape_that_nobody_has_may_be_anybodys() -> None:
    with pytest.raises(UnknownVendor, match="doesn't look like any provider's; choose") as asked:
        vendor_of("key." + "x" * 30)
    assert asked.value.vendors == WITH_KEYS


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("424242:" + "A" * 35, "Telegram"),
        ("xoxb-1-2-abc", "Slack"),
        ("xapp-1-A0-1-abc", "Slack"),
        ("claw_" + "a" * 40, "this gateway"),
        ("sk-ant-admin01-" + "a" * 40, "admin key"),
        ("sk-short", "whole API key"),
        ("sk-proj-" + "a" * 20 + " " + "b" * 20, "whole API key"),
    ],
)
def test_what_is_no_models_key_is_told_with_what_to_do(key: str, advice: str) -> None:
    with pytest.raises(OwnerMustAct, match=advice) as refused:
        vendor_of(key)
    assert key not in str(refused.value)


def test_a_key_of_another_provider_is_told() -> None:
    with pytest.raises(OwnerMustAct, match="from Anthropic, not OpenAI; create one at https"):
        vendor_of("sk-ant-api03-" + "a" * 40, "openai")
    with pytest.raises(OwnerMustAct, match="not a provider"):
        vendor_of("x" * 40, "ollama")

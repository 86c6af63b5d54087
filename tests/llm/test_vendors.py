import pytest
from pydantic import SecretStr

from gateway.domain.errors import OwnerMustAct
from gateway.domain.settings import ProviderSettings
from gateway.llm.vendors import (
    VENDORS_WITH_KEYS,
    Endpoint,
    UnknownVendor,
    endpoint_of,
    host_url,
    split_model,
    vendor,
    vendor_of,
)


def test_a_bare_name_means_openai() -> None:
    assert split_model("gpt-4o") == ("openai", "gpt-4o")
    assert split_model("openrouter/anthropic/claude") == ("openrouter", "anthropic/claude")


def test_the_configured_key_beats_the_environment() -> None:
    environ = {"OPENAI_API_KEY": "from-env", "GOOGLE_API_KEY": "g"}
    configured = {"openai": ProviderSettings(api_key=SecretStr("from-config"))}
    assert endpoint_of("openai", configured, environ).key == "from-config"
    assert endpoint_of("openai", {"openai": ProviderSettings(api_key=SecretStr(""))}, environ).key == "from-env"
    assert endpoint_of("gemini", {}, environ).key == "g"
    assert endpoint_of("groq", {}, environ).key is None


def test_the_address_may_come_from_config_or_environment() -> None:
    environ = {"OPENAI_BASE_URL": "http://a/v1", "OLLAMA_HOST": "0.0.0.0:9999", "MYBOX_API_BASE": "http://b"}
    assert endpoint_of("openai", {"openai": ProviderSettings(base_url="http://c")}, environ).address == "http://c"
    assert endpoint_of("openai", {}, environ).address == "http://a/v1"
    assert endpoint_of("ollama", {}, environ).address == "http://127.0.0.1:9999"
    assert endpoint_of("mybox", {}, environ).address == "http://b"
    assert endpoint_of("groq", {}, environ).address == "https://api.groq.com/openai/v1"


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:11434"),
        ("http://10.0.0.5:1234/", "http://10.0.0.5:1234"),
        ("https://box:443", "https://box:443"),
        (":8000", "http://127.0.0.1:8000"),
    ],
)
def test_every_form_of_ollama_host_is_understood(host: str, url: str) -> None:
    assert host_url(host) == url


def test_who_speaks_the_openai_protocol() -> None:
    own_address = {"anthropic": ProviderSettings(base_url="http://x"), "mybox": ProviderSettings(base_url="http://x")}
    assert [
        endpoint_of(prefix, own_address, {}).speaks_openai for prefix in ("groq", "mybox", "anthropic", "azure")
    ] == [
        True,
        True,
        False,
        False,
    ]


def test_a_key_is_only_needed_at_the_public_address() -> None:
    assert Endpoint(vendor("openai")).lacks_key
    assert not Endpoint(vendor("openai"), base_url="http://127.0.0.1/v1").lacks_key
    assert not Endpoint(vendor("ollama")).lacks_key


def test_keys_do_not_show() -> None:
    assert "hunter2" not in repr(Endpoint(vendor("openai"), SecretStr("hunter2")))


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
    assert asked.value.vendors == VENDORS_WITH_KEYS


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

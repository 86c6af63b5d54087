import pytest
from pydantic import SecretStr

from gateway.domain.settings import ProviderSettings
from gateway.llm.catalog import split, vendor
from gateway.llm.endpoint import Endpoint, endpoint_of, host_url


def test_a_bare_name_means_openai() -> None:
    assert split("gpt-4o") == ("openai", "gpt-4o")
    assert split("openrouter/anthropic/claude") == ("openrouter", "anthropic/claude")


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

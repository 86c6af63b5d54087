import pytest
from pydantic import TypeAdapter, ValidationError

from gateway.domain.settings import HttpUrl, ModelSettings

ADDRESS = TypeAdapter[str](HttpUrl)


@pytest.mark.parametrize(
    "text", ["http://h", "https://api.example.com/v1", "http://127.0.0.1:11434/", "http://[::1]:80/v1?a=b"]
)
def test_an_address_is_kept_as_it_was_written(text: str) -> None:
    assert ADDRESS.validate_python(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost:11434",
        "http://",
        "http:///v1",
        "ftp://h",
        "http://[::1",
        "http://h:99999",
        "http://h:x",
        "http://a b",
    ],
)
def test_what_cannot_be_reached_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValidationError, match='must be an address such as "https://'):
        ADDRESS.validate_python(text)


def test_nothing_needs_to_be_said() -> None:
    settings = ModelSettings()
    assert (settings.primary, settings.fallbacks, settings.engine) == ("auto", (), "auto")
    assert settings.params.model_dump() == {"temperature": 0.7, "top_p": 1.0, "max_output_tokens": 4096}
    assert (settings.embedding, settings.summary, settings.providers) == ("local", None, {})


@pytest.mark.parametrize(
    "wrong",
    [
        {"primry": "x"},
        {"primary": ""},
        {"params": {"temperature": 3}},
        {"params": {"max_output_tokens": 0}},
        {"providers": {"openai": {"key": "x"}}},
        {"engine": "vllm"},
        {"embedding": "bge"},
        {"embedding": "litellm:openai"},
    ],
)
def test_mistakes_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ModelSettings.model_validate(wrong)


def test_null_sampling_is_allowed() -> None:
    params = ModelSettings.model_validate({"params": {"temperature": None, "top_p": None}}).params
    assert (params.temperature, params.top_p) == (None, None)


def test_keys_do_not_show() -> None:
    settings = ModelSettings.model_validate({"providers": {"openai": {"api_key": "hunter2"}}})
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in settings.model_dump_json()

import pytest
from pydantic import ValidationError

from gateway.domain.settings import ModelSettings


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

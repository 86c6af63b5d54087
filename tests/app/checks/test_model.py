import socket

import pytest

from gateway.app.checks.model import check_model
from tests.app.checks.contexts import Examine, served, told
from tests.fakes.openai_server import FakeModels


def at(url: str, *fallbacks: str) -> str:
    chain = ", ".join(f'"{name}"' for name in fallbacks)
    return (
        f'{{"models": {{"primary": "openai/one", "fallbacks": [{chain}],'
        f' "providers": {{"openai": {{"api_key": "sk-hush-hush-hush", "base_url": "{url}"}}}}}}}}'
    )


@pytest.fixture
def nobody() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


def test_without_a_model_it_says_how_to_connect_one(examine: Examine) -> None:
    (finding,) = examine(check_model, live=True)

    assert (finding.level, "OPENAI_API_KEY" in finding.fix) == ("warn", True)


def test_a_model_without_its_key_is_warned_about(examine: Examine) -> None:
    (finding,) = examine(check_model, '{"models": {"primary": "openai/gpt-5.6", "fallbacks": ["guide/built-in"]}}')

    assert (finding.level, finding.text) == ("warn", "openai/gpt-5.6 needs a key")
    assert finding.fix.startswith("set OPENAI_API_KEY; create one at https://")


def test_a_model_with_its_key_is_fine_and_the_key_is_not_shown(examine: Examine) -> None:
    (chosen,) = examine(check_model, OPENAI_API_KEY="sk-hush")
    (named,) = examine(check_model, '{"models": {"primary": "openai/gpt-5.6"}}', OPENAI_API_KEY="sk-hush")

    assert chosen.level == named.level == "ok"
    assert "OPENAI_API_KEY" in chosen.text
    assert "hush" not in chosen.text + named.text


def test_a_live_model_says_how_long_it_took(examine: Examine) -> None:
    with served(FakeModels()) as models:
        ((level, text),) = told(examine(check_model, at(models.base_url), live=True))

    assert (level, text.startswith("openai/one answered in ")) == ("ok", True)


def test_a_live_model_that_cannot_be_reached_fails_with_its_error_in_a_line(examine: Examine, nobody: str) -> None:
    (finding,) = examine(check_model, at(nobody), live=True)

    assert (finding.level, finding.text.startswith("openai/one: ")) == ("fail", True)
    assert "\n" not in finding.text
    assert "can reach the provider" in finding.fix


def test_a_fallback_that_had_to_answer_is_warned_about(examine: Examine, nobody: str) -> None:
    (finding,) = examine(check_model, at(nobody, "scripted/echo"), live=True)

    assert finding.level == "warn"
    assert finding.text.startswith("scripted/echo answered in ")
    assert "after openai/one: " in finding.text

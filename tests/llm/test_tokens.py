"""Estimates against the tokenizer files that litellm ships."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from gateway.domain.conversation.model import (
    AssistantMessage,
    Prompt,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    UserMessage,
)
from gateway.domain.text.tokens import _known, estimate, forget
from gateway.llm.tokens import estimate_prompt

TEXTS = {
    "English": "It was the best of times, it was the worst of times, it was the age of wisdom. " * 3,
    "German": "Alle Menschen sind frei und gleich an Würde und Rechten geboren. Sie sind mit Vernunft begabt.",
    "Russian": "Все люди рождаются свободными и равными в своем достоинстве и правах.",
    "Chinese": "这是最好的时代，这是最坏的时代，这是智慧的年代，这是愚蠢的年代。我们全都在直奔天堂。",
    "Japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "Korean": "모든 국민은 인간으로서의 존엄과 가치를 가지며, 행복을 추구할 권리를 가진다.",
    "code": Path(__file__).read_text(encoding="utf-8"),
    "JSON": '{"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}} ' * 5,
    "digits": "2024-01-15 13:45:22.123456 192.168.100.200 4111111111111111 0.000123456",
    "hash": "3f786850e387550fdab836ed7e6dc881de23001b 9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
    "emoji": "😀🎉🚀👍 " * 10,
}


@pytest.mark.parametrize("kind", TEXTS)
def test_an_estimate_is_within_a_quarter(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = find_spec("litellm")
    assert spec is not None
    assert spec.origin is not None
    tokenizers = Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tokenizers))
    tiktoken = pytest.importorskip("tiktoken")
    counted = len(tiktoken.get_encoding("cl100k_base").encode(TEXTS[kind]))
    assert 0.75 <= estimate(TEXTS[kind]) / counted <= 1.25


def test_nothing_is_nothing_and_something_is_at_least_one() -> None:
    assert estimate("") == 0
    assert estimate(".") >= 1
    assert estimate("\ud800") > 0


def test_everything_in_a_prompt_counts() -> None:
    call = ToolCall("1", "look", '{"at": "sky"}')
    messages = (
        SystemMessage("be kind"),
        UserMessage("hi"),
        AssistantMessage("well", (call,)),
        ToolMessage("1", "blue"),
    )
    sizes = [estimate_prompt(Prompt(messages[:count])) for count in range(5)]
    assert sizes == sorted(set(sizes))
    with_tool = Prompt(messages, (ToolSpec("look", "Looks.", {"type": "object"}),))
    assert estimate_prompt(with_tool) > sizes[-1]


def test_estimates_that_were_let_go_are_made_anew() -> None:
    before = estimate("a text that is estimated twice")
    forget()
    assert _known.cache_info().currsize == 0
    assert estimate("a text that is estimated twice") == before

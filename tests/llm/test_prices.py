"""Windows and prices, checked against the whole table."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from gateway.domain.conversation.model import (
    AssistantMessage,
    Highest,
    Prompt,
    SystemMessage,
    ToolCall,
    ToolMessage,
    ToolSpec,
    Usage,
    UserMessage,
)
from gateway.domain.principals import Label
from gateway.domain.text.tokens import _known, estimate, forget
from gateway.llm.prices import Prices, estimate_prompt, known_models, table_keys, table_path
from gateway.llm.vendors import VENDORS


def test_the_chat_models_of_a_provider_are_listed_by_the_names_that_the_settings_take() -> None:
    listed = known_models(frozenset({"gemini", "anthropic"}))
    assert {"gemini/gemini-2.5-pro", "anthropic/claude-haiku-4-5"} <= set(listed)
    assert not [name for name in listed if not name.startswith(("gemini/", "anthropic/")) or "embedding" in name]


def test_every_chat_model_of_the_table_is_found() -> None:
    path = table_path()
    assert path is not None
    table = json.loads(path.read_text())
    prices = Prices()
    some = [name for name, entry in table.items() if entry.get("mode") == "chat" and "/" in name][::20]
    assert len(some) > 50
    for name in some:
        entry, price = table[name], prices.of(name)
        assert price.per_input == (entry.get("input_cost_per_token") or 0)
        assert price.window == (entry.get("max_input_tokens") or entry.get("max_tokens") or 128_000)


def test_the_table_has_every_model_that_auto_takes() -> None:
    prices = Prices()
    for vendor in VENDORS:
        if vendor.model:
            assert prices.of(vendor.model).per_output > 0, vendor.model
            assert prices.of(vendor.model).window >= 100_000, vendor.model


def test_cached_tokens_cost_less() -> None:
    prices = Prices()
    fresh, cached = Usage(1_000_000, 0), Usage(1_000_000, 0, cached_tokens=1_000_000)
    assert prices.cost("gpt-4o", fresh) == pytest.approx(2.5)
    assert prices.cost("openai/gpt-4o", cached) == pytest.approx(1.25)


def test_output_costs_too() -> None:
    assert Prices().cost("gpt-4o", Usage(0, 1_000_000)) == pytest.approx(10)


def test_the_most_a_call_may_cost_is_its_prompt_and_its_longest_answer() -> None:
    prices = Prices()
    assert prices.highest("gpt-4o", 1_000_000, 100_000) == Highest(usd=pytest.approx(2.5 + 16_384 * 10 / 1e6))
    assert prices.highest("gpt-4o", 0, 100) == Highest(usd=pytest.approx(0.001))


def test_a_model_without_a_price_may_use_tokens() -> None:
    assert Prices().highest("ollama/unheard-of", 1_000, 100) == Highest(tokens=1_100)


def test_an_unknown_model_is_free_and_has_a_usual_window() -> None:
    prices = Prices()
    assert (prices.of("who/knows").window, prices.cost("who/knows", Usage(9, 9))) == (128_000, 0)
    assert prices.of("ollama/who-knows").window == 8_192


def test_without_the_table_nothing_breaks(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text('{\n    "a/b": {\n        "max_tokens": 5,\n        "input_cost_per_token": 2\n    }\n}')
    prices = Prices(table)
    assert (prices.of("a/b").window, prices.cost("a/b", Usage(2, 0, 1))) == (5, 4)
    assert prices.of("c/d").window == 128_000


def test_openrouter_models_are_looked_up_under_their_makers_name() -> None:
    assert table_keys("openrouter/anthropic/claude-sonnet-4.5:beta")[-1] == "claude-sonnet-4-5"
    assert Prices().of("openrouter/anthropic/claude-sonnet-4.5").per_input > 0


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
    with_tool = Prompt(messages, (ToolSpec("look", "Looks.", {"type": "object"}, Label.OWNER),))
    assert estimate_prompt(with_tool) > sizes[-1]


def test_estimates_that_were_let_go_are_made_anew() -> None:
    before = estimate("a text that is estimated twice")
    forget()
    assert _known.cache_info().currsize == 0
    assert estimate("a text that is estimated twice") == before

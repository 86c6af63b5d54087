"""Windows and prices, checked against the whole table."""

import json
from pathlib import Path

import pytest

from gateway.domain.conversation.model import Highest, Usage
from gateway.llm.catalog import VENDORS
from gateway.llm.prices import Prices, names, table_path


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
            assert prices.window(vendor.model) >= 100_000, vendor.model


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
    assert (prices.window("who/knows"), prices.cost("who/knows", Usage(9, 9))) == (128_000, 0)
    assert prices.window("ollama/who-knows") == 8_192


def test_without_the_table_nothing_breaks(tmp_path: Path) -> None:
    table = tmp_path / "table.json"
    table.write_text('{\n    "a/b": {\n        "max_tokens": 5,\n        "input_cost_per_token": 2\n    }\n}')
    prices = Prices(table)
    assert (prices.of("a/b").window, prices.cost("a/b", Usage(2, 0, 1))) == (5, 4)
    assert prices.window("c/d") == 128_000


def test_openrouter_models_are_looked_up_under_their_makers_name() -> None:
    assert names("openrouter/anthropic/claude-sonnet-4.5:beta")[-1] == "claude-sonnet-4-5"
    assert Prices().of("openrouter/anthropic/claude-sonnet-4.5").per_input > 0

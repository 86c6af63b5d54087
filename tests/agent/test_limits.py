import pytest

from gateway.agent.limits import UNSPENT, Limits, Repeats, Spent, dollars
from gateway.domain.conversation.model import ToolCall, Usage
from gateway.domain.conversation.transcript import ToolFinished, ToolIntent, ToolResult
from gateway.domain.principals import Label


def finished(arguments: str, result: str) -> ToolFinished:
    return ToolFinished(ToolIntent(ToolCall("1", "look", arguments), 0), ToolResult("1", result), False, 1, Label.OWNER)


def test_spending_adds_up() -> None:
    usage = Usage(input_tokens=10, output_tokens=5, cached_tokens=8, cost_usd=0.25)
    assert UNSPENT.plus(usage).plus(usage) == Spent(2, 30, 0.5)


def test_a_run_below_its_limits_goes_on() -> None:
    assert Limits().stop(Spent(39, 1_999_999, 0.49)) is None
    assert Limits(tokens=None, usd=None).stop(Spent(1, 10**9, 10**3)) is None


def test_a_budget_of_nothing_still_lets_free_models_work() -> None:
    assert Limits(usd=0).stop(Spent(3, 1000, 0.0)) is None
    assert Limits(usd=0).stop(Spent(3, 1000, 0.0001)) is not None


@pytest.mark.parametrize("arguments", ['{"a":1,"b":2}', "not JSON"])
def test_equal_calls_are_counted_over_rounds(arguments: str) -> None:
    repeats = Repeats()
    for times in (1, 2, 3):
        assert Limits().stop_repeating(repeats) is None
        repeats.note([finished(arguments, "same"), finished(arguments, f"new {times}")])
    stop = Limits().stop_repeating(repeats)
    assert stop is not None
    assert stop.limit == "repeats"


def test_the_order_of_arguments_makes_no_difference() -> None:
    repeats = Repeats()
    repeats.note([finished('{"a":1,"b":2}', "same")])
    repeats.note([finished('{"b":2,"a":1}', "same")])
    assert repeats.most_repeated() == ("look", 2)


def test_a_call_whose_results_change_is_bounded_too() -> None:
    repeats = Repeats()
    for times in range(9):
        repeats.note([finished("{}", f"new {times}")])
    assert Limits().stop_repeating(repeats) is None
    repeats.note([finished("{}", "new 9")])
    stop = Limits().stop_repeating(repeats)
    assert stop is not None
    assert (stop.limit, "10 times" in stop.text) == ("polls", True)


def test_arguments_nested_beyond_measure_are_compared_as_they_are() -> None:
    repeats = Repeats()
    for _ in range(2):
        repeats.note([finished("[" * 100_000, "same")])
    assert repeats.most_repeated() == ("look", 2)


@pytest.mark.parametrize(
    ("amount", "told"), [(0, "$0.00"), (0.0004, "$0.0004"), (0.1, "$0.10"), (2.034, "$2.03"), (20, "$20.00")]
)
def test_small_amounts_are_told_in_fractions_of_a_cent(amount: float, told: str) -> None:
    assert dollars(amount) == told

"""A run that goes in circles ends, with the limits every installation has."""

from collections.abc import Callable

import pytest

from gateway.agent.limits import Limits
from gateway.agent.loop import run_turn
from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.transcript import Answered, Steered
from gateway.domain.principals import Label
from tests.agent.scripted import ScriptedModel, Workshop, call, reply, said, stringify
from tests.fakes.caller import CALLER


async def nobody() -> Steered:
    """No message arrives during the turn."""
    return Steered((), Label.OWNER)


async def end(calls: Callable[[int], ToolCall]) -> tuple[Answered, int]:
    """How a model fares that never comes to an end by itself, and how often it was asked."""
    model = ScriptedModel.of(*(reply("", calls(round)) for round in range(100)))
    turn = run_turn(
        [said("go")],
        model=model,
        toolbox=Workshop().toolbox,
        caller=CALLER,
        render=stringify,
        steer=nobody,
        limits=Limits(),
    )
    last = [event async for event in turn][-1]
    assert isinstance(last, Answered)
    return last, len(model.prompts)


def alternating(round: int) -> ToolCall:
    return call(("look", "put")[round % 2], text="x")


def in_a_circle_of_five(round: int) -> ToolCall:
    return call("look", text=str(round % 5))


def the_same_with_new_results(_: int) -> ToolCall:
    return call("count")


def malformed(_: int) -> ToolCall:
    return ToolCall("", "look", '{"text": ')


def deeply_nested(_: int) -> ToolCall:
    return ToolCall("", "look", "[" * 100_000)


def unknown(_: int) -> ToolCall:
    return call("lok", text="x")


def always_another(round: int) -> ToolCall:
    return call("look", text=str(round))


@pytest.mark.parametrize(
    ("calls", "stopped_by", "asked"),
    [
        (alternating, "repeats", 5),
        (in_a_circle_of_five, "repeats", 11),
        (the_same_with_new_results, "polls", 10),
        (malformed, "repeats", 3),
        (deeply_nested, "repeats", 3),
        (unknown, "repeats", 3),
        (always_another, "model_calls", 40),
    ],
)
async def test_a_run_that_goes_in_circles_is_ended_by_default(
    calls: Callable[[int], ToolCall], stopped_by: str, asked: int
) -> None:
    answered, prompts = await end(calls)
    assert (answered.stopped_by, prompts) == (stopped_by, asked)
    assert 'Say "go on"' in answered.text

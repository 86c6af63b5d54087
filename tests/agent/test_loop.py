import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from gateway.agent.limits import Limits, Spent
from gateway.agent.loop import NO_ANSWER, run_turn
from gateway.domain.conversation.model import (
    Attempt,
    Model,
    ModelsExhausted,
    Prompt,
    Restarted,
    TextDelta,
    ToolCall,
    Usage,
)
from gateway.domain.conversation.tools import Caller, Labelled, Tool, ToolClass
from gateway.domain.conversation.transcript import (
    Answered,
    AssistantText,
    Entry,
    ModelReplied,
    Steered,
    ToolFinished,
    ToolIntent,
    ToolResult,
    TurnEvent,
    UserText,
)
from gateway.domain.principals import Label
from tests.agent.scripted import ScriptedModel, Workshop, call, reply, said, stringify
from tests.fakes.caller import CALLER
from tests.fakes.toolboxes import toolbox_of


async def nobody() -> Steered:
    """No message arrives during the turn."""
    return Steered((), Label.OWNER)


def turn(
    model: Model, workshop: Workshop, entries: Sequence[Entry] = (), ordinal: int = 0, **options: Any
) -> AsyncGenerator[TurnEvent, None]:
    settings: dict[str, Any] = {"render": stringify, "steer": nobody, "limits": Limits()} | options
    caller = replace(CALLER, ordinal=ordinal)
    return run_turn(entries or [said("hi")], model=model, toolbox=workshop.toolbox, caller=caller, **settings)


async def events_of(model: Model, workshop: Workshop | None = None, **options: Any) -> list[TurnEvent]:
    return [event async for event in turn(model, workshop or Workshop(), **options)]


def shown(*entries: Entry) -> Prompt:
    return stringify(entries)


class TestAnswering:
    async def test_a_plain_turn_is_one_model_call(self) -> None:
        model = ScriptedModel([[TextDelta("Hel"), TextDelta("lo"), reply("Hello")]])
        assert await events_of(model) == [
            TextDelta("Hel"),
            TextDelta("lo"),
            ModelReplied(reply("Hello"), ()),
            Answered("Hello"),
        ]
        assert model.prompts == [shown(said("hi"))]
        assert model.closed == 1

    async def test_a_failed_try_passes_through(self) -> None:
        restarted = Restarted(Attempt("a", "timeout", "no byte for 120 s"))
        model = ScriptedModel([[TextDelta("Hel"), restarted, TextDelta("Hi"), reply("Hi")]])
        assert (await events_of(model))[:3] == [TextDelta("Hel"), restarted, TextDelta("Hi")]

    async def test_an_empty_answer_says_so(self) -> None:
        assert (await events_of(ScriptedModel.of(reply(" \n"))))[-1] == Answered(NO_ANSWER)

    async def test_when_every_model_failed_the_error_passes(self) -> None:
        model = ScriptedModel([[ModelsExhausted("a: 401. Check the key.", ())]])
        with pytest.raises(ModelsExhausted, match="Check the key"):
            await events_of(model)

    async def test_a_stream_without_a_reply_is_a_defect(self) -> None:
        with pytest.raises(RuntimeError, match="without a reply"):
            await events_of(ScriptedModel([[TextDelta("Hel")]]))


class TestTools:
    async def test_a_call_is_announced_run_and_shown_to_the_model(self) -> None:
        asked = reply("Let me look.", call("look", "c1", text="a"))
        model, workshop = ScriptedModel.of(asked, reply("a is there")), Workshop()
        events = await events_of(model, workshop, ordinal=7)
        intent = ToolIntent(call("look", "c1", text="a"), 7)
        result = ToolResult("c1", '{"seen":"a"}')
        assert events[0] == ModelReplied(asked, (intent,))
        assert isinstance(events[1], ToolFinished)
        assert (events[1].intent, events[1].result, events[1].failed) == (intent, result, False)
        assert events[-1] == Answered("a is there")
        assert model.prompts[1] == shown(said("hi"), AssistantText("Let me look.", final=False), intent, result)

    async def test_nothing_runs_before_the_caller_has_stored_the_calls(self) -> None:
        model, workshop = ScriptedModel.of(reply("", call("send", text="a")), reply("done")), Workshop()
        async with aclosing(turn(model, workshop)) as events:
            assert isinstance(await anext(events), ModelReplied)
            await asyncio.sleep(0)
            assert workshop.ran == []
        assert workshop.ran == []

    async def test_ordinals_go_on_from_round_to_round(self) -> None:
        model = ScriptedModel.of(
            reply("", call("look", "a", text="1"), call("look", "b", text="2")),
            reply("", call("look", "c", text="3")),
            reply("done"),
        )
        events = await events_of(model, ordinal=4)
        intents = [intent for event in events if isinstance(event, ModelReplied) for intent in event.intents]
        assert [intent.ordinal for intent in intents] == [4, 5, 6]

    async def test_results_come_as_they_end_and_are_shown_in_the_order_of_the_calls(self) -> None:
        model = ScriptedModel.of(
            reply("", call("wait", "slow", text="slow"), call("wait", "quick", text="quick")), reply("done")
        )
        workshop = Workshop()
        workshop.go = {"slow": asyncio.Event(), "quick": asyncio.Event()}
        workshop.go["quick"].set()
        finished: list[str] = []
        async for event in turn(model, workshop):
            if isinstance(event, ToolFinished):
                finished.append(event.result.call_id)
                workshop.go["slow"].set()
        assert finished == ["quick", "slow"]
        results = [message.text for message in model.prompts[1].messages if message.text.startswith("ToolResult")]
        assert ["slow" in results[0], "quick" in results[1]] == [True, True]

    async def test_at_most_eight_calls_run_at_once(self) -> None:
        calls = [call("breathe", text=str(number)) for number in range(20)]
        workshop = Workshop()
        await events_of(ScriptedModel.of(reply("", *calls), reply("done")), workshop)
        assert workshop.most_at_once == 8
        assert len(workshop.ran) == 20

    async def test_a_failing_tool_does_not_end_the_turn(self) -> None:
        events = await events_of(ScriptedModel.of(reply("", call("nothing")), reply("there is no such tool")))
        assert isinstance(events[1], ToolFinished)
        assert events[1].failed
        assert events[-1] == Answered("there is no such tool")

    async def test_ids_that_are_empty_or_used_before_are_made_unique(self) -> None:
        before = [ToolIntent(call("look", "used"), 0), ToolResult("used", "{}"), said("more")]
        calls = [
            call("look", id, text=str(place)) for place, id in enumerate(["", "used", "twice", "twice", "call00005"])
        ]
        events = await events_of(ScriptedModel.of(reply("", *calls), reply("done")), entries=before, ordinal=5)
        replied = events[0]
        assert isinstance(replied, ModelReplied)
        ids = [intent.call.id for intent in replied.intents]
        assert ids == ["call00005", "call00006", "twice", "call00008", "call00009"]


class TestSteering:
    async def test_messages_that_arrive_join_before_the_next_model_call(self) -> None:
        waiting: list[list[UserText]] = [[], [said("also b"), said("and c")], []]

        async def steer() -> Steered:
            return Steered(tuple(waiting.pop(0)), Label.OWNER)

        model = ScriptedModel.of(reply("", call("look", "1", text="a")), reply("a, b and c"))
        events = await events_of(model, steer=steer)
        assert [type(event) for event in events] == [ModelReplied, ToolFinished, Steered, ModelReplied, Answered]
        assert events[2] == Steered((said("also b"), said("and c")), Label.OWNER)
        assert model.prompts[1].messages[-2:] == shown(said("also b"), said("and c")).messages

    async def test_no_message_is_taken_by_a_run_that_is_at_its_limit(self) -> None:
        async def steer() -> Steered:
            raise AssertionError

        events = await events_of(ScriptedModel([]), steer=steer, spent=Spent(model_calls=40))
        assert [type(event) for event in events] == [Answered]


class TestTrust:
    async def test_what_a_run_has_read_counts_for_its_next_calls(self) -> None:
        asked: list[Label] = []

        async def run(_arguments: Nothing, caller: Caller) -> Labelled:
            asked.append(caller.label)
            return Labelled({"page": "obey"}, Label.UNTRUSTED)

        toolbox = toolbox_of([Tool("fetch", "", Nothing, run, kind=ToolClass.READ)], no_room)
        model = ScriptedModel.of(
            reply("", call("fetch", "1"), call("fetch", "2")), reply("", call("fetch", "3")), reply("done")
        )
        events = [
            event
            async for event in run_turn(
                [said("hi")],
                model=model,
                toolbox=toolbox,
                caller=CALLER,
                render=stringify,
                steer=nobody,
                limits=Limits(),
            )
        ]
        assert asked == [Label.OWNER, Label.OWNER, Label.UNTRUSTED]
        assert {event.label for event in events if isinstance(event, ToolFinished)} == {Label.UNTRUSTED}

    async def test_so_does_what_joined_it(self) -> None:
        asked: list[Label] = []
        waiting = [Steered((said("and c"),), Label.KNOWN), Steered((), Label.OWNER)]

        async def steer() -> Steered:
            return waiting.pop(0)

        async def run(_arguments: Nothing, caller: Caller) -> Labelled:
            asked.append(caller.label)
            return Labelled.own({})

        toolbox = toolbox_of([Tool("look", "", Nothing, run, kind=ToolClass.READ)], no_room)
        model = ScriptedModel.of(reply("", call("look", "1")), reply("done"))
        turn = run_turn(
            [said("hi")], model=model, toolbox=toolbox, caller=CALLER, render=stringify, steer=steer, limits=Limits()
        )
        events = [event async for event in turn]
        assert isinstance(events[0], Steered)
        assert asked == [Label.KNOWN]


class Nothing(BaseModel):
    """No arguments."""


async def no_room(_name: str, _text: str, _label: Label) -> str:
    raise OSError("disk full")


class TestResuming:
    async def test_what_may_run_twice_runs_again_and_what_may_not_says_so(self) -> None:
        pending = [
            ToolIntent(call(name, str(place), text=name), place) for place, name in enumerate(["look", "send", "put"])
        ]
        model, workshop = ScriptedModel.of(reply("done")), Workshop()
        entries: list[Entry] = [said("hi"), *pending]
        events = await events_of(model, workshop, entries=entries, pending=pending, ordinal=3)
        assert sorted(workshop.ran) == ["look", "put"]
        results = {event.intent.call.name: event for event in events if isinstance(event, ToolFinished)}
        assert json.loads(results["send"].result.text)["error"] == "may_have_run"
        assert [results[name].failed for name in ("look", "send", "put")] == [False, True, False]
        in_order = [results[name].result for name in ("look", "send", "put")]
        assert model.prompts == [shown(*entries, *in_order)]
        assert events[-1] == Answered("done")

    async def test_a_tool_that_is_gone_answers_so(self) -> None:
        pending = [ToolIntent(call("gone", "1"), 0)]
        events = await events_of(ScriptedModel.of(reply("ok")), entries=pending, pending=pending)
        assert isinstance(events[0], ToolFinished)
        assert json.loads(events[0].result.text)["error"] == "unknown_tool"


class TestLimits:
    @pytest.mark.parametrize(
        ("limits", "stopped_by", "told"),
        [
            (Limits(model_calls=2), "model_calls", "2 model calls"),
            (Limits(tokens=30, usd=None), "tokens", "30 tokens"),
            (Limits(usd=0.5), "usd", "$0.50"),
        ],
    )
    async def test_a_run_ends_at_its_limit_with_its_calls_answered(
        self, limits: Limits, stopped_by: str, told: str
    ) -> None:
        usage = Usage(10, 5, 0, 0.25)
        model = ScriptedModel.of(*(reply("", call("count", str(number)), usage=usage) for number in range(9)))
        events = await events_of(model, limits=limits)
        assert [type(event) for event in events] == [ModelReplied, ToolFinished] * 2 + [Answered]
        answer = events[-1]
        assert isinstance(answer, Answered)
        assert answer.stopped_by == stopped_by
        assert told in answer.text
        assert 'Say "go on"' in answer.text

    async def test_an_answer_that_passes_the_limit_is_still_the_answer(self) -> None:
        model = ScriptedModel.of(reply("Hello", usage=Usage(10, 5, 0, 9.0)))
        assert (await events_of(model))[-1] == Answered("Hello")

    async def test_the_same_call_with_the_same_result_ends_the_run_at_the_third_time(self) -> None:
        first = ToolCall("1", "look", '{"text": "a"}')
        second = ToolCall("2", "look", '{ "text":"a" }')
        model = ScriptedModel.of(*(reply("", again) for again in (first, second, first, first)))
        workshop = Workshop()
        events = await events_of(model, workshop)
        assert workshop.ran == ["a", "a", "a"]
        answer = events[-1]
        assert isinstance(answer, Answered)
        assert answer.stopped_by == "repeats"
        assert "called look 3 times" in answer.text

    async def test_the_same_call_with_new_results_goes_on(self) -> None:
        model = ScriptedModel.of(*(reply("", call("count")) for _ in range(5)), reply("5"))
        assert (await events_of(model))[-1] == Answered("5")

    async def test_equal_calls_side_by_side_are_no_circle(self) -> None:
        model = ScriptedModel.of(reply("", *(call("look", text="a") for _ in range(5))), reply("a"))
        assert (await events_of(model))[-1] == Answered("a")


class TestCancelling:
    async def test_cancelling_stops_running_tools(self) -> None:
        model = ScriptedModel.of(reply("", call("wait", text="a"), call("wait", text="b")))
        workshop = Workshop()
        running = asyncio.create_task(events_of(model, workshop))
        await workshop.started.wait()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert sorted(workshop.cancelled) == ["a", "b"]

    async def test_closing_between_two_results_stops_the_other_tools(self) -> None:
        model, workshop = ScriptedModel.of(reply("", call("look", text="a"), call("wait", text="b"))), Workshop()
        async with aclosing(turn(model, workshop)) as events:
            await anext(events)
            assert isinstance(await anext(events), ToolFinished)
            await workshop.started.wait()
        assert workshop.cancelled == ["b"]

    async def test_closing_in_the_middle_of_an_answer_closes_the_models_stream(self) -> None:
        model = ScriptedModel([[TextDelta("Hel"), reply("Hello")]])
        async with aclosing(turn(model, Workshop())) as events:
            assert await anext(events) == TextDelta("Hel")
            assert model.closed == 0
        assert model.closed == 1

"""Retry and fallback, with scripted providers and a clock that does not wait."""

import asyncio
from contextlib import aclosing

import pytest

from gateway.domain.conversation.model import Attempt, ModelsExhausted, Restarted, TextDelta, ToolCall, Usage, Waiting
from gateway.domain.settings import CallParams
from gateway.llm.errors import ErrorKind, ModelError
from tests.llm.chain import HELLO, Chain
from tests.llm.scripted import Say


def fail(kind: ErrorKind, message: str = "no", retry_after: float | None = None) -> ModelError:
    return ModelError(kind, message, status=400, retry_after=retry_after)


LIMITED = fail(ErrorKind.RATE_LIMIT, "slow down")
BROKEN = fail(ErrorKind.SERVER, "boom")


async def test_the_answer_is_streamed_and_then_whole() -> None:
    chain = Chain(a=[Say(("Hel", "lo"), usage=Usage(7, 2))])
    first, second, reply = await chain.events()
    assert [first, second] == [TextDelta("Hel"), TextDelta("lo")]
    assert (await Chain(a=["x"]).reply()).text == "x"
    assert reply == await Chain(a=[Say(("Hel", "lo"), usage=Usage(7, 2))]).reply()


async def test_a_failing_server_is_tried_again_after_5_10_and_10_seconds() -> None:
    chain = Chain(a=[BROKEN, fail(ErrorKind.NETWORK), fail(ErrorKind.SILENCE), "at last"])
    reply = await chain.reply()
    assert chain.clock.slept == [5, 10, 10]
    assert reply.text == "at last"
    assert [attempt.error for attempt in reply.failed] == ["server", "network", "silence"]


async def test_a_server_that_stays_broken_makes_room_for_the_next_model() -> None:
    chain = Chain(a=[BROKEN] * 9, b=["from b", "again from b"])
    assert (await chain.reply()).model == "b"
    assert chain.providers.asked() == {"a": 4, "b": 1}
    assert (await chain.reply()).text == "again from b"
    assert chain.providers.asked()["a"] == 4


@pytest.mark.parametrize("kind", [ErrorKind.RATE_LIMIT, ErrorKind.OVERLOADED, ErrorKind.AUTH, ErrorKind.NO_CREDIT])
async def test_a_busy_or_refusing_model_makes_room_at_once_and_cools_down(kind: ErrorKind) -> None:
    chain = Chain(a=[fail(kind)] * 2 + ["a is back"], b=["b1", "b2", "b3"])
    assert (await chain.reply()).text == "b1"
    assert chain.clock.slept == []
    assert (await chain.reply()).text == "b2"
    assert chain.providers.asked()["a"] == 1
    chain.clock.time += 301
    assert (await chain.reply()).text == "b3"
    assert chain.providers.asked()["a"] == 2


async def test_retry_after_sets_how_long_a_model_cools() -> None:
    chain = Chain(a=[fail(ErrorKind.RATE_LIMIT, retry_after=7), "back"], b=["b"])
    await chain.reply()
    [cooling] = chain.client.describe().cooling
    assert (cooling.model, cooling.kind, cooling.seconds) == ("a", ErrorKind.RATE_LIMIT, 7)
    assert chain.client.describe().active == "b"
    chain.clock.time += 8
    assert (await chain.reply()).text == "back"


async def test_a_cooling_model_is_tried_last_rather_than_never() -> None:
    chain = Chain(a=[LIMITED, "a helps"], b=["b", fail(ErrorKind.BAD_REQUEST)])
    await chain.reply()
    assert (await chain.reply()).text == "a helps"
    assert chain.client.describe().cooling == ()


async def test_with_no_other_model_left_a_limited_one_is_waited_for() -> None:
    chain = Chain(a=[LIMITED, fail(ErrorKind.OVERLOADED, retry_after=42), LIMITED, "finally"])
    assert (await chain.reply()).text == "finally"
    assert chain.clock.slept == [5, 42, 10]


async def test_each_wait_is_told_before_it_begins() -> None:
    chain = Chain(a=[LIMITED, fail(ErrorKind.OVERLOADED, retry_after=42), BROKEN, "finally"])
    waits = [(event.attempt.error, event.seconds) for event in await chain.events() if isinstance(event, Waiting)]
    assert waits == [("rate_limit", 5), ("overloaded", 42), ("server", 5)]
    assert [seconds for _, seconds in waits] == chain.clock.slept


async def test_moving_on_to_the_next_model_is_no_wait() -> None:
    events = await Chain(a=[LIMITED], b=[fail(ErrorKind.AUTH)], c=["c"]).events()
    assert not [event for event in events if isinstance(event, Waiting)]


async def test_only_the_busy_models_of_a_chain_are_asked_again() -> None:
    chain = Chain(a=[LIMITED, "a"], b=[fail(ErrorKind.AUTH)])
    reply = await chain.reply()
    assert (reply.model, chain.clock.slept) == ("a", [5])
    assert chain.providers.asked() == {"a": 2, "b": 1}


async def test_a_wait_of_hours_is_not_waited_for() -> None:
    chain = Chain(a=[fail(ErrorKind.RATE_LIMIT, retry_after=3600)])
    with pytest.raises(ModelsExhausted, match="in about 60 min"):
        await chain.reply()
    assert chain.clock.slept == []


@pytest.mark.parametrize("kind", [ErrorKind.CONTEXT_LENGTH, ErrorKind.BAD_REQUEST])
async def test_a_refused_prompt_goes_to_the_next_model_and_blames_nobody(kind: ErrorKind) -> None:
    chain = Chain(a=[fail(kind)], b=["b takes it"])
    assert (await chain.reply()).text == "b takes it"
    assert (chain.clock.slept, chain.client.describe().cooling) == ([], ())


async def test_every_model_gets_the_same_prompt() -> None:
    chain = Chain(a=[LIMITED], b=[BROKEN, "b"])
    await chain.reply()
    prompts = [prompt for provider in chain.providers.by_model.values() for _, prompt in provider.requests]
    assert prompts == [HELLO] * 3


async def test_text_that_was_streamed_before_a_failure_is_taken_back() -> None:
    chain = Chain(a=[Say(("half an ",), error=BROKEN), Say(("whole ", "answer"))])
    events = await chain.events()
    attempt = Attempt("a", "server", "HTTP 400: boom")
    assert events[:3] == [TextDelta("half an "), Restarted(attempt), Waiting(attempt, 5)]
    assert events[3:5] == [TextDelta("whole "), TextDelta("answer")]
    assert (await Chain(a=[BROKEN, "x"]).events())[:2] == [Waiting(attempt, 5), TextDelta("x")]


async def test_an_empty_answer_is_a_failed_try() -> None:
    chain = Chain(a=[Say((" ",)), "words"])
    reply = await chain.reply()
    assert reply.failed == (Attempt("a", "server", "empty answer (finish reason stop)"),)


@pytest.mark.parametrize(
    ("finish", "words"), [("length", "its whole limit of 4096 tokens"), ("content_filter", "content filter")]
)
async def test_an_answer_that_would_stay_empty_is_not_asked_for_again(finish: str, words: str) -> None:
    chain = Chain(a=[Say(finish=finish)])
    with pytest.raises(ModelsExhausted, match=words):
        await chain.reply()
    assert chain.providers.asked() == {"a": 1}


async def test_a_call_without_text_is_an_answer() -> None:
    call = ToolCall("1", "look", "{}")
    assert (await Chain(a=[Say(calls=(call,))]).reply()).calls == (call,)


async def test_silence_is_a_failed_try() -> None:
    never = asyncio.Event()
    chain = Chain(silence=0.02, a=[Say(("I was about to",), wait_for=never), "say this"])
    reply = await chain.reply()
    assert reply.text == "say this"
    assert reply.failed == (Attempt("a", "silence", "nothing arrived for 0.02 s"),)


async def test_when_all_fail_the_user_learns_what_was_tried_and_what_to_do() -> None:
    chain = Chain(a=[BROKEN] * 4, b=[fail(ErrorKind.CONTEXT_LENGTH, "too long")])
    with pytest.raises(ModelsExhausted) as caught:
        await chain.reply()
    lines = str(caught.value).splitlines()
    assert lines[1] == "1. `a`: server (4 times): HTTP 400: boom"
    assert lines[2] == "2. `b`: context_length: HTTP 400: too long"
    assert "/new" in lines[-1]
    assert [attempt.model for attempt in caught.value.attempts] == ["a"] * 4 + ["b"]


@pytest.mark.parametrize(
    ("kinds", "overflow"),
    [
        ([ErrorKind.CONTEXT_LENGTH], True),
        ([ErrorKind.CONTEXT_LENGTH, ErrorKind.AUTH], True),
        ([ErrorKind.AUTH, ErrorKind.BAD_REQUEST], False),
    ],
)
async def test_a_failure_says_whether_a_shorter_prompt_may_help(kinds: list[ErrorKind], overflow: bool) -> None:
    chain = Chain({f"m{place}": [fail(kind)] for place, kind in enumerate(kinds)})
    with pytest.raises(ModelsExhausted) as caught:
        await chain.reply()
    assert caught.value.overflow is overflow


async def test_keys_never_appear_in_an_error() -> None:
    chain = Chain(a=[fail(ErrorKind.AUTH, "bad key secret-of-a, not sk-abcdefghijklmnop")])
    with pytest.raises(ModelsExhausted, match=r"bad key \*\*\*, not \*\*\*"):
        await chain.reply()


async def test_usage_that_nobody_reports_is_estimated() -> None:
    usage = (await Chain(a=["a few words"]).reply()).usage
    assert usage.input_tokens > 0
    assert usage.output_tokens > 0


async def test_cost_comes_from_the_price_table_unless_the_provider_tells_it() -> None:
    chain = Chain({"gpt-4o": [Say(("x",), usage=Usage(1000, 100)), Say(("x",), usage=Usage(1000, 100, cost_usd=9.0))]})
    assert (await chain.reply()).usage.cost_usd == pytest.approx(1000 * 2.5e-6 + 100 * 1e-5)
    assert (await chain.reply()).usage.cost_usd == 9


async def test_no_more_output_is_asked_for_than_the_model_can_give() -> None:
    chain = Chain({"gpt-4o": [Say(finish="length")]}, params=CallParams(max_output_tokens=1_000_000))
    with pytest.raises(ModelsExhausted, match="limit of 16384 tokens"):
        await chain.reply()


async def test_closing_the_stream_closes_the_provider() -> None:
    chain = Chain(a=[Say(("one", "two"), wait_for=asyncio.Event())])
    async with aclosing(chain.client.stream(HELLO)) as events:
        assert await anext(events) == TextDelta("one")
    assert chain.providers.by_model["a"].closed == 1


async def test_cancelling_the_reader_closes_the_provider() -> None:
    chain = Chain(a=[Say(("one",), wait_for=asyncio.Event())])
    seen = asyncio.Event()

    async def read() -> None:
        async for _ in chain.client.stream(HELLO):
            seen.set()

    task = asyncio.create_task(read())
    await seen.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert chain.providers.by_model["a"].closed == 1
    assert chain.providers.asked() == {"a": 1}


async def test_latency_is_that_of_the_try_that_answered() -> None:
    chain = Chain(a=[BROKEN, "x"])
    assert (await chain.reply()).latency_ms == 0
    assert chain.clock.time == 5


async def test_an_unforeseen_error_is_not_hidden() -> None:
    def script(*_: object) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Chain(a=script).reply()


async def test_an_answer_that_does_not_end_is_tried_once_more_then_the_next_model_is_asked() -> None:
    chain = Chain(big=[fail(ErrorKind.ENDLESS)] * 2, small=["ok"])
    reply = await chain.reply()
    assert (reply.text, reply.model) == ("ok", "small")
    assert chain.providers.asked() == {"big": 2, "small": 1}

"""What a turn emits reaches the chat while it runs."""

import asyncio
from dataclasses import replace

import pytest

from gateway.config.clock import SystemClock
from gateway.domain.channel import Capabilities, Drafts
from gateway.domain.events import Answered, ModelReplied, Steered
from gateway.domain.inbound import Address
from gateway.domain.model import Attempt, Restarted, TextDelta
from gateway.flow.live import Live, TextDropped, TextWritten
from gateway.flow.turn import sinks as sinks_module
from gateway.flow.turn.sinks import DRAFT_AFTER, DRAFT_EVERY, DraftSink, LiveSink, typing
from gateway.store import addresses, tasks
from gateway.store.addresses import AddressRow
from tests.fakes.channel import FakeChannel
from tests.flow.path import FakeModel, MessagePath, build, call, crash, in_turn, said


class Hand(SystemClock):
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.time = 100.0

    def monotonic(self) -> float:
        return self.time


async def somewhere(path: MessagePath) -> AddressRow:
    accepted = await path.tell("hello")
    assert accepted.address_id is not None
    async with path.database.connection() as conn:
        return await addresses.get(conn, accepted.address_id)


async def test_a_draft_grows_as_often_as_a_platform_bears(path: MessagePath) -> None:
    clock, channel = Hand(), FakeChannel()
    sink = DraftSink(channel, await somewhere(path), 7, clock)
    for text, wait in (("a", 0.1), ("b", DRAFT_AFTER), ("c", 0.1), ("d", DRAFT_EVERY)):
        clock.time += wait
        await sink.take(TextDelta(text))
    assert channel.drafts == ["ab", "abcd"]


async def test_a_draft_forgets_what_was_said_before_another_try_or_a_tool(path: MessagePath) -> None:
    clock, channel = Hand(), FakeChannel()
    sink = DraftSink(channel, await somewhere(path), 7, clock)
    await sink.take(TextDelta("wrong"))
    await sink.take(Restarted(Attempt("fake", "busy", "x")))
    clock.time += 5
    await sink.take(TextDelta("right"))
    await sink.take(ModelReplied(said("right"), ()))
    clock.time += 5
    for event in (Steered(()), Answered("x"), TextDelta("next")):
        await sink.take(event)
    assert channel.drafts == ["right", "next"]


async def test_a_screen_sees_text_and_where_it_starts_again(path: MessagePath) -> None:
    accepted = await path.tell("hello")
    assert accepted.session_id is not None
    live = Live()
    sink = LiveSink(live, accepted.session_id)
    with live.subscribe(accepted.session_id) as events:
        for event in (TextDelta("a"), Restarted(Attempt("fake", "busy", "x")), Steered(()), Answered("b")):
            await sink.take(event)
        assert events.ready() == [TextWritten("a"), TextDropped()]


async def test_a_screen_sees_tools_start_and_end(path: MessagePath) -> None:
    path.model.answer = in_turn(said("", call("look", text="x")), said("done"))
    accepted = await path.tell("go")
    assert accepted.session_id is not None
    with path.live.subscribe(accepted.session_id) as events:
        await path.turns.run(await path.claim())
        seen = [type(event).__name__ for event in events.ready()]
    assert seen == ["TurnStarted", "ToolStarted", "ToolEnded", "TextWritten", "MessageStored", "TurnEnded"]


async def test_typing_is_shown_while_a_turn_runs_and_no_longer(path: MessagePath) -> None:
    path.model.gate = asyncio.Event()
    async with path.working():
        accepted = await path.tell("hello")
        await path.model.called.wait()
        assert path.channel.typed == [Address("fake", "bot", "1")]
        path.model.gate.set()
        await path.answer(accepted)
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("typing")] == []


async def test_a_channel_that_shows_neither_typing_nor_drafts_is_asked_for_neither(path: MessagePath) -> None:
    plain = FakeChannel(capabilities=Capabilities(max_text=4096))
    path = await build(path.database, path.workspace, FakeModel(), channel=plain)
    at = await somewhere(path)
    await path.turns.run(await path.claim())
    async with typing(plain, at), typing(None, at):
        await asyncio.sleep(0)
    assert (plain.typed, plain.drafts) == ([], [])


MARKING = Capabilities(max_text=4096, reactions=True)
HERE = Address("fake", "bot", "1")


class TestMarks:
    async def test_what_is_being_answered_is_marked_until_it_is_answered(self, path: MessagePath) -> None:
        channel, model = FakeChannel(capabilities=MARKING), FakeModel(gate=asyncio.Event())
        path = await build(path.database, path.workspace, model, channel=channel)
        await path.tell("one", id="m1")
        accepted = await path.tell("two", id="m2")
        async with path.working():
            await model.called.wait()
            assert channel.reacted == [(HERE, "m1", True), (HERE, "m2", True)]
            assert model.gate is not None
            model.gate.set()
            await path.answer(accepted)
            await path.worker.settle()
        assert channel.reacted[2:] == [(HERE, "m1", False), (HERE, "m2", False)]

    async def test_a_turn_that_was_killed_leaves_no_mark_for_ever(self, path: MessagePath) -> None:
        channel, model = FakeChannel(capabilities=MARKING), FakeModel(gate=asyncio.Event())
        path = await build(path.database, path.workspace, model, channel=channel)
        await path.tell("hello", id="m1")
        run = asyncio.create_task(path.turns.run(await path.claim()))
        await model.called.wait()
        await crash(run)
        again = FakeChannel(capabilities=MARKING)
        path = await build(path.database, path.workspace, FakeModel(), path.instance, channel=again)
        async with path.database.connection() as conn:
            await tasks.release(conn, path.instance)
        await path.turns.run(await path.claim())
        assert again.reacted == [(HERE, "m1", True), (HERE, "m1", False)]

    async def test_what_is_given_up_is_not_marked_any_more(self, path: MessagePath) -> None:
        channel = FakeChannel(capabilities=MARKING)
        path = await build(path.database, path.workspace, FakeModel(), channel=channel)
        await path.tell("hello", id="m1")
        await path.turns.give_up(await path.claim())
        assert channel.reacted[-1] == (HERE, "m1", False)

    async def test_a_platform_that_hangs_delays_no_answer(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sinks_module, "MARK_WITHIN", 0.05)
        channel = Hanging(capabilities=MARKING)
        path = await build(path.database, path.workspace, FakeModel(), channel=channel)
        await path.tell("hello", id="m1")
        await path.turns.run(await path.claim())
        assert channel.reacted == [(HERE, "m1", True), (HERE, "m1", False)]
        assert await path.rows("select text from outbox") == [("re: hello",)]

    async def test_a_platform_without_marks_is_asked_for_none(self, path: MessagePath) -> None:
        channel = FakeChannel(capabilities=replace(MARKING, reactions=False))
        path = await build(path.database, path.workspace, FakeModel(), channel=channel)
        await path.tell("hello", id="m1")
        await path.turns.run(await path.claim())
        assert channel.reacted == []


class Broken(FakeChannel):
    """A plug-in that keeps no promise."""

    async def typing(self, address: Address) -> None:
        raise RuntimeError("typing")

    async def draft(self, address: Address, draft: int, text: str) -> None:
        raise RuntimeError("draft")

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        raise RuntimeError("react")


async def test_a_channel_that_breaks_over_what_it_shows_costs_no_answer(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks_module, "DRAFT_AFTER", 0.0)
    every = Capabilities(max_text=4096, drafts=Drafts.PRIVATE, typing=True, reactions=True)
    path = await build(path.database, path.workspace, FakeModel(), channel=Broken(capabilities=every))
    await path.tell("hello")
    await path.turns.run(await path.claim())
    assert await path.rows("select text from outbox") == [("re: hello",)]


class Hanging(FakeChannel):
    """A platform that never says whether it took a reaction."""

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        await super().react(address, platform_id, seen=seen)
        await asyncio.Event().wait()

"""What a chat shows of a turn while it runs, and that nothing of it delays an answer."""

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from gateway.config.machine import SystemClock
from gateway.domain.channels.channel import Capabilities, Drafts
from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.model import Attempt, ModelEvent, Prompt, Restarted, TextDelta
from gateway.domain.conversation.transcript import Answered, ModelReplied, Steered
from gateway.domain.principals import Label
from gateway.flow.live import Subscription
from gateway.flow.turn import presence
from gateway.flow.turn.presence import DRAFT_AFTER, DRAFT_EVERY, DRAFT_RARELY, drafts, typing
from gateway.store.delivery import addresses
from gateway.store.delivery.addresses import AddressRow
from gateway.store.work import tasks
from tests.fakes.channel import FakeChannel
from tests.flow.path import FakeModel, MessagePath, build, crash, said


class Hand(SystemClock):
    """A clock that a test moves by hand."""

    def __init__(self) -> None:
        self.time = 0.0
        self._moved = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        until = self.time + seconds
        while self.time < until - 1e-9:
            await self._moved.wait()

    async def move(self, seconds: float) -> None:
        """So many seconds pass; whoever waited for them goes on."""
        self.time += seconds
        self._moved.set()
        self._moved = asyncio.Event()
        for _ in range(10):
            await asyncio.sleep(0)


async def somewhere(path: MessagePath) -> AddressRow:
    accepted = await path.tell("hello")
    assert accepted.address_id is not None
    async with path.database.connection() as conn:
        return await addresses.get(conn, accepted.address_id)


class Holding(FakeChannel):
    """A platform that takes its time over drafts, and may never answer."""

    def __init__(self) -> None:
        super().__init__()
        self.taken_up, self.let_go = asyncio.Event(), asyncio.Event()

    async def draft(self, address: Address, draft: int, text: str) -> bool:
        self.taken_up.set()
        await self.let_go.wait()
        return await super().draft(address, draft, text)


class Wordy(FakeModel):
    """Says word after word."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[ModelEvent, None]:
        for word in range(30):
            yield TextDelta(f"{word} ")
            await asyncio.sleep(0)
        yield said("done")


class TestDrafts:
    async def test_a_draft_that_hangs_holds_no_answer_up(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(presence, "DRAFT_AFTER", 0.0)
        monkeypatch.setattr(presence, "STOP_WITHIN", 0.01)
        channel = Holding()
        path = await build(path.database, path.workspace, Wordy(), channel=channel)
        await path.tell("hello")
        async with asyncio.timeout(30):
            await path.turns.run(await path.claim())
        assert channel.taken_up.is_set()
        assert await path.rows("select text from outbox") == [("done",)]
        channel.let_go.set()
        await asyncio.sleep(0)
        assert channel.drafts == []

    async def test_one_grows_as_often_as_a_platform_bears(self, path: MessagePath) -> None:
        clock, channel = Hand(), FakeChannel()
        async with drafts(channel, await somewhere(path), 7, clock) as [sink]:
            for text, wait in (("a", 0.1), ("b", DRAFT_AFTER), ("c", 0.1), ("d", DRAFT_EVERY)):
                await clock.move(wait / 2)
                await sink.take(TextDelta(text))
                await clock.move(wait / 2)
        assert channel.drafts == ["ab", "abcd"]

    async def test_one_that_is_slow_is_followed_by_the_newest_text_alone(self, path: MessagePath) -> None:
        clock, channel = Hand(), Holding()
        async with drafts(channel, await somewhere(path), 7, clock) as [sink]:
            await clock.move(DRAFT_AFTER)
            for text in "abc":
                await sink.take(TextDelta(text))
                await clock.move(DRAFT_EVERY)
            channel.let_go.set()
            await clock.move(DRAFT_EVERY)
            await clock.move(DRAFT_EVERY)
        assert channel.drafts == ["a", "abc"]

    async def test_what_was_said_before_another_try_or_a_tool_is_forgotten(self, path: MessagePath) -> None:
        clock, channel = Hand(), FakeChannel()
        async with drafts(channel, await somewhere(path), 7, clock) as [sink]:
            await sink.take(TextDelta("wrong"))
            await sink.take(Restarted(Attempt("fake", "busy", "x")))
            await clock.move(5)
            await sink.take(TextDelta("right"))
            await clock.move(5)
            await sink.take(ModelReplied(said("right"), ()))
            for event in (Steered((), Label.OWNER), Answered("x"), TextDelta("next")):
                await sink.take(event)
            await clock.move(5)
        assert channel.drafts == ["right", "next"]

    async def test_what_fails_again_and_again_is_tried_ever_more_rarely(self, path: MessagePath) -> None:
        clock, channel = Hand(), FakeChannel(drafts_fail=True)
        async with drafts(channel, await somewhere(path), 7, clock) as [sink]:
            for _ in range(120):
                await sink.take(TextDelta("x"))
                await clock.move(DRAFT_EVERY)
            assert [len(text) for text in channel.drafts] == [2, 4, 8, 16, 32, 62, 92]
            channel.drafts_fail = False
            await clock.move(DRAFT_RARELY)
            failed = len(channel.drafts)
            for _ in range(3):
                await sink.take(TextDelta("x"))
                await clock.move(DRAFT_EVERY)
            assert len(channel.drafts) == failed + 3

    async def test_none_is_shown_after_the_turn(self, path: MessagePath) -> None:
        clock, channel = Hand(), FakeChannel()
        async with drafts(channel, await somewhere(path), 7, clock) as [sink]:
            await sink.take(TextDelta("late"))
        await clock.move(60)
        assert channel.drafts == []


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
            await tasks.died(conn, path.instance)
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
        monkeypatch.setattr(presence, "MARK_WITHIN", 0.05)
        channel = Hanging(capabilities=MARKING)
        path = await build(path.database, path.workspace, FakeModel(), channel=channel)
        await path.tell("hello", id="m1")
        await path.turns.run(await path.claim())
        assert channel.reacted == [(HERE, "m1", True), (HERE, "m1", False)]
        assert await path.rows("select text from outbox") == [("re: hello",)]

    async def test_the_turn_is_over_for_those_who_look_on_before_the_marks_are_taken_back(
        self, path: MessagePath
    ) -> None:
        channel = Watching(capabilities=MARKING)
        path = await build(path.database, path.workspace, FakeModel(), channel=channel)
        accepted = await path.tell("hello", id="m1")
        assert accepted.session_id is not None
        with path.live.subscribe(accepted.session_id) as channel.events:
            await path.turns.run(await path.claim())
        assert channel.before_unmark == ["TurnStarted", "TextWritten", "MessageStored", "TurnEnded"]

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

    async def draft(self, address: Address, draft: int, text: str) -> bool:
        raise RuntimeError("draft")

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        raise RuntimeError("react")


async def test_a_channel_that_breaks_over_what_it_shows_costs_no_answer(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(presence, "DRAFT_AFTER", 0.0)
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


class Watching(FakeChannel):
    """Notes what was published before a mark is taken back."""

    events: Subscription
    before_unmark: list[str]

    async def react(self, address: Address, platform_id: str, *, seen: bool) -> None:
        if not seen:
            self.before_unmark = [type(event).__name__ for event in self.events.ready()]

"""A conversation that grows too long, from the message that makes it so to the answer."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.agent.conversation.fit import message_tokens
from gateway.agent.limits import Limits
from gateway.domain.conversation.model import Attempt, ModelsExhausted, Prompt, Reply, SystemMessage
from gateway.domain.errors import RunLost
from gateway.domain.text.tokens import estimate
from gateway.flow.inbound.persistence import Accepted
from gateway.store.connection.pool import Database
from tests.flow.path import MEMBER, FakeModel, MessagePath, asked, build, call, crash, in_turn, results, said

OPEN = "select count(*) from messages where kind = 'user' and answered_by is null and closed_at is null"
CLOSED = "select summary from journals where closed_at is not null"
SUMMARIES = "select text, covers from messages where kind = 'summary' order by seq"
SUMMARY = """\
## Goal
Learn about tea.
## Decisions
Green tea.
## Files
none
## Worth remembering
- Ada drinks green tea.
- Ada lives in Turin."""
EXHAUSTED = ModelsExhausted("No model answered.", (Attempt("fake", "busy", "x"),))
TOO_LONG = ModelsExhausted("Too long.", (Attempt("fake", "context_length", "x"),), overflow=True)


def words(tokens: int) -> str:
    return "word " * tokens


def shown(prompt: Prompt) -> str:
    """Everything a model was shown but its standing instructions."""
    return "\n".join(message.text for message in prompt.messages if not isinstance(message, SystemMessage))


def size(prompt: Prompt) -> int:
    return sum(message_tokens(message, estimate) for message in prompt.messages)


class Paths:
    """Builds gateways over one database that compact early."""

    def __init__(self, database: Database, workspace: Path) -> None:
        self._database = database
        self._workspace = workspace

    async def build(
        self, model: FakeModel | None = None, summaries: FakeModel | None = None, at: int = 400, **more: Any
    ) -> MessagePath:
        model = model or FakeModel()
        return await build(self._database, self._workspace, model, at_tokens=at, summaries=summaries, **more)


@pytest.fixture
def paths(database: Database, workspace: Path) -> Paths:
    return Paths(database, workspace)


def writer(text: str = SUMMARY) -> FakeModel:
    return FakeModel(lambda _: said(text))


class TestSummary:
    async def test_a_long_conversation_goes_on_with_a_summary(self, paths: Paths) -> None:
        path = await paths.build(summaries=writer())
        async with path.working():
            path.model.answer = in_turn(said("Green tea."), said("That one."), said("Blue."))
            await path.ask(f"tea {words(400)}")
            await path.ask("which?")
            assert await path.ask("and cups?") == "Blue."
        last = shown(path.model.prompts[-1])
        assert last.startswith("[Summary of the conversation before this]\n## Goal\nLearn about tea.")
        assert "tea word" not in last
        assert "which?" in last
        assert "That one." in last
        assert len(await path.rows(SUMMARIES)) == 1
        assert await path.rows(CLOSED) == [("Learn about tea.",)]

    async def test_a_short_one_does_not(self, paths: Paths) -> None:
        path = await paths.build(summaries=(model := writer()), at=64_000)
        async with path.working():
            for text in "abc":
                await path.ask(text)
        assert (model.prompts, await path.rows(SUMMARIES)) == ([], [])

    async def test_it_is_compacted_when_the_model_could_not_read_it(self, paths: Paths) -> None:
        path = await paths.build(FakeModel(budget=3_500), writer(), at=64_000)
        async with path.working():
            await path.ask(words(3_000))
            await path.ask("b")
        assert len(await path.rows(SUMMARIES)) == 1

    async def test_facts_are_remembered_with_where_they_come_from(self, paths: Paths) -> None:
        path = await paths.build(summaries=writer())
        async with path.working():
            for _ in range(3):
                await path.ask(words(400))
        assert await path.rows(
            """select m.text, m.category, m.label, m.origin, array(
                 select seq from memory_sources join messages s on s.id = message_id where memory_id = m.id)
               from memories m where m.kind = 'memory' order by m.id"""
        ) == [
            ("Ada drinks green tea.", "fact", 0, "compaction", [1, 2, 3]),
            ("Ada lives in Turin.", "fact", 0, "compaction", [1, 2, 3]),
        ]

    async def test_what_a_summary_costs_is_accounted(self, paths: Paths) -> None:
        path = await paths.build(summaries=FakeModel(lambda _: said(SUMMARY)), limits=Limits(model_calls=2))
        async with path.working():
            await path.ask(words(400))
            path.model.answer = in_turn(said("", call("look", text="x")))
            assert (await path.ask("look")).startswith("I stopped early")
        assert await path.rows("select count(*) from task_steps where kind = 'model'") == [(3,)]

    async def test_no_summary_is_asked_for_once_the_run_may_not_go_on(self, paths: Paths) -> None:
        path = await paths.build(summaries=(model := writer()), limits=Limits(model_calls=0))
        async with path.working():
            await path.ask(words(400))
            await path.ask("go on")
        assert model.prompts == []

    async def test_screens_are_told(self, paths: Paths) -> None:
        path = await paths.build(summaries=writer())
        async with path.working():
            await path.ask(words(400))
        accepted = await path.tell("b")
        assert accepted.session_id is not None
        with path.live.subscribe(accepted.session_id) as events:
            await path.turns.run(await path.claim())
            seen = [type(event).__name__ for event in events.ready()]
        assert seen == ["TurnStarted", "MessageStored", "TextWritten", "MessageStored", "TurnEnded"]


class TestWithoutModel:
    @pytest.mark.parametrize(
        "answer",
        [
            lambda _: said(""),
            lambda _: said("Sorry, I would rather not."),
            lambda _: said("", call("look", text="x")),
            lambda _: EXHAUSTED,
            lambda _: TOO_LONG,
            lambda _: RuntimeError("the stream broke"),
            None,
        ],
    )
    async def test_whatever_the_model_does_the_conversation_goes_on(
        self, paths: Paths, answer: Callable[[Prompt], Reply | Exception] | None
    ) -> None:
        path = await paths.build(summaries=None if answer is None else FakeModel(answer))
        async with path.working():
            await path.ask(f"tea {words(300)}")
            assert await path.ask("b") == "re: b"
        [(text, covers)] = await path.rows(SUMMARIES)
        assert text.startswith("## Goal\ntea word")
        assert covers == 1
        assert estimate(text) <= 200
        assert await path.rows("select count(*) from memories where kind = 'memory'") == [(0,)]

    async def test_a_model_that_promises_too_much_room_is_asked_in_as_much_as_it_has(self, paths: Paths) -> None:
        path = await paths.build(summaries=(model := FakeModel(budget=600)))
        async with path.working():
            await path.ask(words(5_000))
            await path.ask("b")
        [prompt] = model.prompts
        assert size(prompt) <= 600


class TestNothingIsLost:
    async def test_every_message_of_many_compactions_is_answered_once(self, paths: Paths) -> None:
        path = await paths.build(summaries=writer())
        async with path.working():
            for number in range(12):
                text = f"{number} {words(150)}"
                assert await path.ask(text) == f"re: {text}".strip()
            await path.outbound.drain(5)
        assert len(await path.rows(SUMMARIES)) >= 5
        assert path.model.answered == [f"{number} {words(150)}" for number in range(12)]
        assert len(path.channel.texts) == 12
        assert await path.rows(OPEN) == [(0,)]
        covers = [covers for _, covers in await path.rows(SUMMARIES)]
        assert covers == sorted(set(covers))

    async def test_the_newest_messages_are_read_word_for_word(self, paths: Paths) -> None:
        path = await paths.build(summaries=writer())
        async with path.working():
            await path.ask(words(400))
            for accepted in await path.say("first of two", "second of two"):
                await path.answer(accepted)
        assert path.model.answered[-1] == "first of two + second of two"
        assert "re: word" in shown(path.model.prompts[-1])

    async def test_a_message_during_a_compaction_joins_the_turn(self, paths: Paths) -> None:
        path = await paths.build(summaries=(model := writer()))
        async with path.working():
            await path.ask(words(400))
            model.gate = asyncio.Event()
            first = await path.tell("first")
            await model.called.wait()
            second = await path.tell("second")
            model.gate.set()
            assert [(await path.answer(each)).text for each in (first, second)] == ["re: first + second"] * 2

    async def test_a_solo_message_during_a_compaction_gets_its_own_answer(self, paths: Paths) -> None:
        path = await paths.build(summaries=(model := writer()))
        async with path.working():
            await path.ask(words(400), solo=True)
            model.gate = asyncio.Event()
            first = await path.tell("first", solo=True)
            await model.called.wait()
            second = await path.tell("second", solo=True)
            model.gate.set()
            assert [(await path.answer(each)).text for each in (first, second)] == ["re: first", "re: second"]

    async def test_other_chats_do_not_wait_for_it(self, paths: Paths) -> None:
        path = await paths.build(summaries=(model := writer()))
        async with path.working():
            await path.ask(words(400))
            model.gate = asyncio.Event()
            slow = await path.tell("slow")
            await model.called.wait()
            assert await path.ask("quick", chat=MEMBER, sender=MEMBER) == "re: quick"
            model.gate.set()
            assert (await path.answer(slow)).text == "re: slow"

    @pytest.mark.parametrize("command", ["/stop", "/new"])
    async def test_a_command_during_a_compaction_ends_it(self, paths: Paths, command: str) -> None:
        path = await paths.build(summaries=(model := writer()))
        async with path.working():
            await path.ask(words(400))
            model.gate = asyncio.Event()
            stopped = await path.tell("stop me")
            await model.called.wait()
            await path.tell(command)
            assert (await path.answer(stopped)).text == "Stopped."
            await model.let_go.wait()
            model.gate = None
            assert (await path.ask("go on")).endswith("go on")
        assert len(path.model.prompts) == 2
        assert len(await path.rows(SUMMARIES)) == (command == "/stop")

    async def test_a_run_that_was_taken_over_writes_no_summary(self, paths: Paths) -> None:
        path = await paths.build(summaries=(model := writer()))
        async with path.working():
            await path.ask(words(400))
        model.gate = asyncio.Event()
        await path.tell("b")
        zombie = asyncio.create_task(path.turns.run(await path.claim()))
        await model.called.wait()
        await path.rows("update tasks set token = token + 1 where status = 'running' returning id")
        model.gate.set()
        await asyncio.wait([zombie])
        assert isinstance(zombie.exception(), RunLost)
        assert await path.rows(SUMMARIES) == []
        assert await path.rows("select count(*) from memories where kind = 'memory'") == [(0,)]
        assert await path.rows(CLOSED) == []

    async def test_a_summary_that_another_has_overtaken_is_not_stored(self, paths: Paths) -> None:
        path = await paths.build(summaries=(model := writer()))
        async with path.working():
            await path.ask(words(400))
        model.gate = asyncio.Event()
        await path.tell("b")
        run = asyncio.create_task(path.turns.run(await path.claim()))
        await model.called.wait()
        await path.rows(
            """insert into messages (session_id, principal_id, seq, kind, text, label, origin, covers)
               select id, principal_id, 99, 'summary', 'other', 0, 'gateway', 1 from sessions returning id"""
        )
        model.gate.set()
        await run
        assert await path.rows(SUMMARIES) == [("other", 1)]
        assert "other" in shown(path.model.prompts[-1])
        assert await path.rows(OPEN) == [(0,)]


class TestInTheMiddleOfATask:
    async def interrupted(self, paths: Paths) -> MessagePath:
        """A turn that died in its second round of calls, after a conversation."""
        replies = in_turn(
            said("old"), said("", call("look", text="a")), said("More.", call("look", text="b"), call("send", text="c"))
        )
        path = await paths.build(FakeModel(replies), at=64_000)
        async with path.working():
            await path.ask(f"before {words(300)}")
        reached, left = asyncio.Event(), iter([False, True, True])

        async def hang() -> None:
            if next(left):
                reached.set()
                await asyncio.Event().wait()

        path.workshop.during = hang
        await path.tell("do it")
        run = asyncio.create_task(path.turns.run(await path.claim()))
        await reached.wait()
        await crash(run)
        await path.rows("update tasks set status = 'pending', run_at = now() where status = 'running' returning id")
        return path

    async def test_a_resumed_run_goes_on_where_it_was(self, paths: Paths) -> None:
        await self.interrupted(paths)
        again = await paths.build(FakeModel(in_turn(said("", call("look", text="d")), said("done"))), writer())
        await again.turns.run(await again.claim())
        assert len(await again.rows(SUMMARIES)) == 1
        first, last = again.model.prompts
        assert "before word" not in shown(first)
        assert [result.get("did", result.get("error")) for result in results(first)] == ["a", "b", "may_have_run"]
        assert len(results(last)) == 4
        assert again.workshop.ran == ["b", "d"]
        ordinals = await again.rows("select ordinal from messages where kind = 'tool_intent' order by seq")
        assert ordinals == [(0,), (1,), (2,), (3,)]
        assert await again.rows(OPEN) == [(0,)]

    async def test_what_it_has_used_counts_with_what_the_summary_took(self, paths: Paths) -> None:
        await self.interrupted(paths)
        again = await paths.build(FakeModel(), writer(), limits=Limits(model_calls=3))
        await again.turns.run(await again.claim())
        assert again.model.prompts == []
        [(text,)] = await again.rows("select text from messages where final and kind = 'assistant' and seq > 3")
        assert "3 model calls" in text

    async def test_keys_of_calls_that_a_summary_hides_are_not_given_again(self, paths: Paths) -> None:
        model = FakeModel(
            in_turn(said("", call("look", text=words(300))), said("one"), said("", call("look")), said("two"))
        )
        path = await paths.build(model, writer())
        later: list[Accepted] = []

        async def interrupt() -> None:
            if not later:
                later.append(await path.tell("second", solo=True))

        path.workshop.during = interrupt
        async with path.working():
            assert await path.ask("first", solo=True) == "one"
            assert (await path.answer(later[0])).text == "two"
        assert await path.rows("select count(*) from tasks") == [(1,)]
        assert len(await path.rows(SUMMARIES)) == 1
        ordinals = await path.rows("select ordinal from messages where kind = 'tool_result' order by seq")
        assert ordinals == [(0,), (1,)]

    async def test_the_summary_outlives_a_long_run_in_a_small_window(self, paths: Paths) -> None:
        rounds = [said("", call("look", text=f"{number} {words(700)}")) for number in range(6)]
        model = FakeModel(in_turn(said("old"), *rounds, said("done")), budget=6_000)
        path = await paths.build(model, writer())
        async with path.working():
            await path.ask(words(400))
            assert await path.ask("go") == "done"
        last = path.model.prompts[-1]
        assert "Learn about tea." in shown(last)
        assert 0 < len(results(last)) < 6
        assert asked(last).endswith("go")


class TestOverflow:
    async def test_a_prompt_too_long_for_the_provider_is_shortened_and_tried_again(self, paths: Paths) -> None:
        path = await paths.build(FakeModel(in_turn(said("one"), TOO_LONG, said("two"))), writer(), at=64_000)
        async with path.working():
            await path.ask(f"a {words(3_000)}")
            assert await path.ask("b") == "two"
            await path.outbound.drain(5)
        _, failed, again = path.model.prompts
        assert "a word" in shown(failed)
        assert shown(again).startswith("[Summary of")
        assert path.channel.texts == ["one", "two"]

    async def test_a_second_time_ends_with_the_usual_notice(self, paths: Paths) -> None:
        path = await paths.build(
            FakeModel(in_turn(said("one"), TOO_LONG, TOO_LONG, said("three"))), writer(), at=64_000
        )
        async with path.working():
            await path.ask(f"a {words(3_000)}")
            answer = await path.answer(await path.tell("b"))
            assert (answer.text, answer.notice) == ("Too long.", True)
            assert await path.ask("c") == "three"
        assert len(await path.rows(SUMMARIES)) == 1

    async def test_in_the_middle_of_a_run_what_is_done_stays_done(self, paths: Paths) -> None:
        model = FakeModel(in_turn(said("one"), said("", call("send", text=words(6_000))), TOO_LONG, said("two")))
        path = await paths.build(model, writer(), at=64_000)
        async with path.working():
            await path.ask("a")
            assert await path.ask("b") == "two"
        assert len(path.workshop.ran) == 1
        failed, again = path.model.prompts[2:]
        assert len(results(again)) == 1
        assert size(again) < 0.7 * size(failed)
        assert await path.rows("select kind from messages order by seq") == [
            (kind,) for kind in ("user", "assistant", "user", "tool_intent", "tool_result", "summary", "assistant")
        ]

    async def test_with_nothing_to_compact_the_next_prompt_is_shorter_all_the_same(self, paths: Paths) -> None:
        path = await paths.build(FakeModel(in_turn(TOO_LONG, said("one"))), writer(), at=64_000)
        async with path.working():
            assert await path.ask(f"a {words(9_000)}") == "one"
        failed, again = path.model.prompts
        assert len(shown(again)) < 0.7 * len(shown(failed))
        assert await path.rows(SUMMARIES) == []

    async def test_a_message_that_came_meanwhile_joins_the_second_try(self, paths: Paths) -> None:
        path = await paths.build(FakeModel(in_turn(said("one"), TOO_LONG, said("two"))), writer(), at=64_000)
        async with path.working():
            await path.ask(words(500))
            path.model.gate = asyncio.Event()
            path.model.called.clear()
            first = await path.tell("b")
            await path.model.called.wait()
            second = await path.tell("c")
            path.model.gate.set()
            assert [(await path.answer(each)).text for each in (first, second)] == ["two", "two"]
        assert asked(path.model.prompts[-1]) == "b + c"

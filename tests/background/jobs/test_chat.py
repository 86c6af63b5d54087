"""From what is unread to the answer that is committed for it."""

import asyncio

import pytest

from gateway.agent.limits import Limits
from gateway.background import worker as worker_module
from gateway.domain.conversation.model import AssistantMessage, Attempt, ModelsExhausted, Prompt, Reply, UserMessage
from gateway.domain.conversation.transcript import AssistantText
from gateway.domain.principals import Label
from gateway.flow.inbound import answers as answers_module
from gateway.flow.inbound.persistence import Accepted
from gateway.store.connection.pool import Database
from gateway.store.work import tasks
from tests.flow.path import (
    MEMBER,
    FakeModel,
    MessagePath,
    asked,
    build,
    call,
    crash,
    in_turn,
    message,
    restarted,
    results,
    said,
)
from tests.store.world import blocked, held

OPEN = "select count(*) from messages where kind = 'user' and answered_by is null and closed_at is null"
LIVE = "select count(*) from tasks where status in ('pending', 'running') and kind <> 'summarise'"
NONE = [(0,)]
EXHAUSTED = ModelsExhausted("No model answered: fake: overloaded. Try again later.", (Attempt("fake", "busy", "x"),))


class TestAnswers:
    async def test_a_message_is_answered_once(self, path: MessagePath) -> None:
        async with path.working():
            await path.say("hello")
            assert await path.channel.until(bool) == ["re: hello"]
            await path.outbound.drain(5)
        assert path.channel.texts == ["re: hello"]

    async def test_messages_know_their_answer_and_the_task_ends(self, path: MessagePath) -> None:
        both = await path.say("a", "b")
        async with path.working():
            for accepted in both:
                await path.answer(accepted)
        [(answer, kind, text)] = await path.rows("select id, kind, text from messages where kind <> 'user'")
        assert (kind, text) == ("assistant", "re: a + b")
        assert await path.rows("select answered_by from messages where kind = 'user'") == [(answer,), (answer,)]
        assert await path.rows("select status from tasks") == [("completed",)]

    async def test_the_conversation_goes_on(self, path: MessagePath) -> None:
        async with path.working():
            await path.ask("my name is Ada")
            await path.ask("what is my name?")
        texts = " ".join(getattr(m, "text", "") for m in path.model.prompts[1].messages)
        assert "my name is Ada" in texts
        assert "re: my name is Ada" in texts

    async def test_chats_do_not_wait_for_each_other(self, path: MessagePath) -> None:
        gate = path.model.gate = asyncio.Event()
        async with path.working():
            slow = await path.tell("slow")
            await path.model.called.wait()
            path.model.gate = None
            assert await path.ask("quick", chat=MEMBER, sender=MEMBER) == "re: quick"
            gate.set()
            assert (await path.answer(slow)).text == "re: slow"

    async def test_a_run_that_finds_nothing_to_answer_just_ends(self, path: MessagePath) -> None:
        await path.tell("hello")
        await path.rows("update messages set closed_at = now() returning id")
        await path.turns.run(await path.claim())
        assert path.model.prompts == []
        assert await path.rows("select status from tasks") == [("completed",)]

    async def test_a_limit_ends_the_turn_with_its_own_words(self, database: Database, path: MessagePath) -> None:
        model = FakeModel(lambda _: said("", call("look", text="x")))
        path = await build(database, path.workspace, model, limits=Limits(model_calls=2))
        async with path.working():
            assert (await path.ask("go")).startswith("I stopped early")
        assert len(model.prompts) == 2

    async def test_an_answer_is_shown_while_it_is_written(self, path: MessagePath) -> None:
        accepted = await path.tell("hello")
        assert accepted.session_id is not None
        with path.live.subscribe(accepted.session_id) as events:
            await path.turns.run(await path.claim())
            seen = [type(event).__name__ for event in events.ready()]
        assert seen == ["TurnStarted", "TextWritten", "MessageStored", "TurnEnded"]


class TestSteering:
    async def test_a_message_joins_before_the_next_model_call(self, path: MessagePath) -> None:
        path.model.answer = in_turn(said("Let me look.", call("look", text="x")), said("done"))
        joined: list[Accepted] = []

        async def interrupt() -> None:
            joined.extend(await path.say("and quickly", "please"))

        path.workshop.during = interrupt
        async with path.working():
            first = await path.tell("look it up")
            assert (await path.answer(first)).text == "done"
            for each in joined:
                assert (await path.answer(each)).text == "done"
        assert path.model.answered == ["look it up", "and quickly + please"]
        assert await path.rows("select kind from messages order by seq") == [
            (kind,) for kind in ("user", "assistant", "tool_intent", "tool_result", "user", "user", "assistant")
        ]

    async def test_a_message_during_the_last_model_call_joins_its_answer(self, path: MessagePath) -> None:
        path.model.gate = asyncio.Event()
        async with path.working():
            first = await path.tell("first")
            await path.model.called.wait()
            second = await path.tell("second")
            path.model.gate.set()
            assert {(await path.answer(a)).text for a in (first, second)} == {"re: first + second"}
            assert await path.channel.until(bool) == ["re: first + second"]
        assert await path.rows("select count(*) from tasks") == [(1,)]

    async def test_a_message_for_a_turn_that_resumes_is_read_before_the_model_is_asked(self, path: MessagePath) -> None:
        path.model.answer = in_turn(said("", call("look", text="x")))
        reached = path.workshop.hang()
        await path.tell("look it up")
        run = asyncio.create_task(path.turns.run(await path.claim()))
        await reached.wait()
        await crash(run)
        again = await restarted(path)

        async def interrupt() -> None:
            await again.tell("and quickly")

        again.workshop.during = interrupt
        await again.turns.run(await again.claim())
        assert again.model.answered == ["and quickly"]
        assert await path.rows(OPEN) == NONE


class TestSolo:
    async def test_solo_messages_queue_and_are_answered_one_by_one(self, path: MessagePath) -> None:
        accepted = await path.say("a", "b", "c", solo=True)
        async with path.working():
            assert [(await path.answer(a)).text for a in accepted] == ["re: a", "re: b", "re: c"]
        assert path.model.answered == ["a", "b", "c"]

    async def test_others_neither_join_nor_are_joined(self, path: MessagePath) -> None:
        batch = [message("a"), message("b"), message("s", solo=True), message("c"), message("t", solo=True)]
        accepted = await path.inbound.accept(batch)
        async with path.working():
            told = [(await path.answer(a)).text for a in accepted]
        assert told == ["re: a + b", "re: a + b", "re: s", "re: c", "re: t"]

    async def test_a_message_during_a_solo_turn_waits_for_its_own(self, path: MessagePath) -> None:
        path.model.answer = in_turn(said("", call("look", text="x")), said("solo"), said("other"))
        others: list[Accepted] = []

        async def interrupt() -> None:
            others.append(await path.tell("me too"))

        path.workshop.during = interrupt
        async with path.working():
            solo = await path.tell("alone", solo=True)
            assert (await path.answer(solo)).text == "solo"
            assert (await path.answer(others[0])).text == "other"

    async def test_a_solo_answer_extends_the_digest(self, path: MessagePath) -> None:
        async with path.working():
            await path.ask("plain")
            assert await path.rows("select digest from sessions") == [("",)]
            await path.ask("alone", solo=True)
        [(digest,)] = await path.rows("select digest from sessions")
        assert len(digest) == 64


class TestFailures:
    async def test_when_no_model_answers_one_notice_says_so_and_the_next_message_works(self, path: MessagePath) -> None:
        path.model.answer = in_turn(EXHAUSTED, said("better now"))
        async with path.working():
            failed = await path.answer(await path.tell("hello"))
            assert (failed.text, failed.notice) == (str(EXHAUSTED), True)
            assert await path.ask("again") == "better now"
            await path.outbound.drain(5)
        assert path.channel.texts == [str(EXHAUSTED), "better now"]
        assert await path.rows("select status, error from tasks order by seq") == [
            ("failed", "no model answered"),
            ("completed", None),
        ]
        assert await path.rows(OPEN) == NONE

    async def test_three_crashing_attempts_end_with_one_message(self, path: MessagePath) -> None:
        path.model.answer = in_turn(*[RuntimeError("a bug")] * 3, said("fresh"))
        await path.tell("hello")
        for _ in range(3):
            run = await path.claim()
            assert not run.exhausted
            task = asyncio.create_task(path.turns.run(run))
            await asyncio.wait([task])
            assert isinstance(task.exception(), RuntimeError)
            await path.rows("update tasks set status = 'pending', run_at = now() returning id")
        async with path.working():
            [told] = await path.channel.until(bool)
            assert told.startswith("I could not answer: 3 attempts failed.")
            assert await path.ask("once more") == "fresh"
            await path.outbound.drain(5)
        assert len(path.channel.texts) == 2
        assert await path.rows("select status from tasks order by seq") == [("failed",), ("completed",)]

    async def test_what_is_written_after_a_message_that_kills_is_answered_by_itself(self, path: MessagePath) -> None:
        poison, other, path.model.gate = await path.tell("poison"), None, asyncio.Event()
        for death in range(4):
            path.model.called.clear()
            run = asyncio.create_task(path.turns.run(await path.claim()))
            await path.model.called.wait()
            if death == 1:
                other = await path.tell("what time is it?")
            await crash(run)
            async with path.database.connection() as conn:
                await tasks.died(conn, path.instance)
            await path.rows("update tasks set held_until = null returning id")
        assert other is not None
        path.model.gate.set()
        async with path.working():
            assert "3 attempts failed" in (await path.answer(poison)).text
            assert not (await path.answer(other)).notice

    async def test_a_message_behind_one_that_cannot_be_answered_starts_afresh(self, path: MessagePath) -> None:
        path.model.answer = in_turn(said("", call("look", text="poison")))
        reached = path.workshop.hang()
        await path.tell("poison", solo=True)
        await path.tell("harmless", solo=True)
        run = asyncio.create_task(path.turns.run(await path.claim()))
        await reached.wait()
        await crash(run)
        again = await restarted(path)
        await path.rows("update tasks set attempts = max_attempts returning id")
        async with again.working():
            told = await again.channel.until(lambda texts: len(texts) == 2)
        assert told[0].startswith("I could not answer")
        assert told[1] == "re: harmless"
        assert again.workshop.ran == []

    async def test_giving_up_when_nothing_is_open_says_nothing(self, path: MessagePath) -> None:
        await path.tell("hello")
        await path.rows("update messages set closed_at = now() returning id")
        await path.turns.give_up(await path.claim())
        assert [kind for kind, _ in await path.transcript()] == ["user"]


class TestResuming:
    async def interrupted(self, path: MessagePath, *calls: str) -> MessagePath:
        """A turn that died while these tools ran, and the gateway that comes after it."""
        path.model.answer = in_turn(said("Let me see.", *(call(name, text=name) for name in calls)))
        reached, count = asyncio.Event(), iter(range(len(calls) - 1, -1, -1))

        async def hang() -> None:
            if next(count) == 0:
                reached.set()
            await asyncio.Event().wait()

        path.workshop.during = hang
        await path.tell("do it")
        run = asyncio.create_task(path.turns.run(await path.claim()))
        await reached.wait()
        await crash(run)
        assert [kind for kind, _ in await path.transcript()] == ["user", "assistant", *["tool_intent"] * len(calls)]
        return await restarted(path)

    async def test_calls_are_stored_before_they_run_and_results_after(self, path: MessagePath) -> None:
        path.model.answer = in_turn(said("", call("look", text="x")), said("seen"))
        seen: list[list[tuple[str, str]]] = []

        async def spy() -> None:
            seen.append(await path.transcript())

        path.workshop.during = spy
        async with path.working():
            await path.ask("look")
        assert seen == [[("user", "look"), ("tool_intent", '{"text": "x"}')]]
        assert [kind for kind, _ in await path.transcript()] == ["user", "tool_intent", "tool_result", "assistant"]
        assert await path.rows("select kind, name from task_steps order by id") == [
            ("model", "fake"),
            ("tool", "look"),
            ("model", "fake"),
        ]

    async def test_what_may_run_twice_is_run_again(self, path: MessagePath) -> None:
        again = await self.interrupted(path, "look", "put")
        await again.turns.run(await again.claim())
        assert sorted(again.workshop.ran) == ["look", "put"]
        [prompt] = again.model.prompts
        assert results(prompt) == [{"did": "look"}, {"did": "put"}]
        assert await path.rows(OPEN) == NONE

    async def test_what_may_not_is_reported_as_perhaps_done(self, path: MessagePath) -> None:
        again = await self.interrupted(path, "send")
        await again.turns.run(await again.claim())
        assert again.workshop.ran == []
        [prompt] = again.model.prompts
        assert [result["error"] for result in results(prompt)] == ["may_have_run"]

    async def test_a_crash_between_results_runs_only_what_is_missing(self, path: MessagePath) -> None:
        path.model.answer = in_turn(said("", call("look", text="a"), call("look", text="b")))
        first, reached = True, asyncio.Event()

        async def second_hangs() -> None:
            nonlocal first
            if not first:
                reached.set()
                await asyncio.Event().wait()
            first = False

        path.workshop.during = second_hangs
        accepted = await path.tell("go")
        assert accepted.session_id is not None
        with path.live.subscribe(accepted.session_id) as events:
            run = asyncio.create_task(path.turns.run(await path.claim()))
            await reached.wait()
            while type(await events.get()).__name__ != "ToolEnded":
                pass
        await crash(run)
        again = await restarted(path)
        await again.turns.run(await again.claim())
        assert again.workshop.ran == ["b"]
        assert [result["did"] for result in results(again.model.prompts[0])] == ["a", "b"]

    async def test_an_interrupted_turn_remembers_what_it_has_used(self, path: MessagePath) -> None:
        crashed = await self.interrupted(path, "look")
        again = await build(path.database, path.workspace, FakeModel(), path.instance, limits=Limits(model_calls=1))
        await again.turns.run(await crashed.claim())
        assert again.model.prompts == []
        [(text,)] = await path.rows("select text from messages where kind = 'assistant' and final")
        assert text.startswith("I stopped early")

    async def test_the_next_turn_of_a_task_starts_with_nothing_used(self, path: MessagePath) -> None:
        model = FakeModel(in_turn(said("", call("look", text="x")), said("one"), said("two")))
        path = await build(path.database, path.workspace, model, limits=Limits(model_calls=2))
        later: list[Accepted] = []

        async def interrupt() -> None:
            later.append(await path.tell("second", solo=True))

        path.workshop.during = interrupt
        async with path.working():
            assert await path.ask("first", solo=True) == "one"
            assert (await path.answer(later[0])).text == "two"

    async def test_what_was_told_meanwhile_does_not_stand_behind_the_question(self, path: MessagePath) -> None:
        path.model.gate = asyncio.Event()
        await path.tell("and now?")
        run = asyncio.create_task(path.turns.run(await path.claim()))
        await path.model.called.wait()
        told = AssistantText("Time to stretch.")
        owner = path.people.owner.id
        async with path.database.transaction() as tx:
            at = await path.proactive.destination(tx, owner)
            assert at is not None
            await path.proactive.say(tx, at, owner, told, label=Label.OWNER, origin="schedule")
        await crash(run)
        again = await restarted(path)
        await again.turns.run(await again.claim())
        [prompt] = again.model.prompts
        assert [type(said) for said in prompt.messages[-2:]] == [AssistantMessage, UserMessage]
        assert "Time to stretch." in prompt.messages[-2].text
        assert asked(prompt) == "and now?"

    async def test_cancelled_calls_are_answered_in_the_next_prompt(self, path: MessagePath) -> None:
        path.model.answer = in_turn(said("", call("look", text="x")), said("fine"))
        reached = path.workshop.hang()
        async with path.working():
            stopped = await path.tell("look")
            await reached.wait()
            await path.say("/stop")
            assert (await path.answer(stopped)).text == "Stopped."
            assert await path.ask("never mind") == "fine"
        assert [result["error"] for result in results(path.model.prompts[1])] == ["no_result"]


class TestZombies:
    async def test_a_run_that_was_taken_over_writes_nothing_when_it_wakes(self, path: MessagePath) -> None:
        path.model.gate = asyncio.Event()
        await path.tell("hello")
        zombie = asyncio.create_task(path.turns.run(await path.claim()))
        await path.model.called.wait()
        await path.rows("update tasks set lease_until = now() - interval '1 s' returning id")
        async with path.database.connection() as conn:
            assert await tasks.recover(conn) == 1
        await path.rows("update tasks set run_at = now() returning id")
        other = await build(path.database, path.workspace, FakeModel(lambda p: said(f"other: {asked(p)}")))
        await other.turns.run(await other.claim())
        path.model.gate.set()
        await asyncio.wait([zombie])
        assert type(zombie.exception()).__name__ == "RunLost"
        assert await path.transcript() == [("user", "hello"), ("assistant", "other: hello")]
        assert await path.rows("select text from outbox") == [("other: hello",)]

    async def test_nor_does_its_tool_result_reach_the_transcript(self, path: MessagePath) -> None:
        path.model.answer = in_turn(said("", call("look", text="x")))

        async def lose() -> None:
            await path.rows("update tasks set token = token + 1 returning id")

        path.workshop.during = lose
        await path.tell("hello")
        zombie = asyncio.create_task(path.turns.run(await path.claim()))
        await asyncio.wait([zombie])
        assert type(zombie.exception()).__name__ == "RunLost"
        assert [kind for kind, _ in await path.transcript()] == ["user", "tool_intent"]


class TestRaces:
    async def test_every_message_is_answered_however_close_to_the_end_of_a_turn_it_comes(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (answers_module, worker_module):
            monkeypatch.setattr(module, "POLL_SECONDS", 0.02)
        other = await build(path.database, path.workspace, FakeModel())
        async with path.working(), other.working():
            for _ in range(8):
                said_ = [
                    each.tell(f"{chat}", chat=chat, sender=chat)
                    for chat in ("1", MEMBER)
                    for each in (path, other, path)
                ]
                accepted = await asyncio.gather(*said_)
                answers = await asyncio.gather(*(path.answer(a) for a in accepted))
                assert not any(answer.notice for answer in answers)
        assert await path.rows(OPEN) == NONE
        assert await path.rows(LIVE) == NONE

    async def test_a_message_that_meets_the_end_of_a_turn_waits_for_it_and_is_not_lost(self, path: MessagePath) -> None:
        await path.tell("first")
        async with held(path.database, "select from sessions for no key update"):
            run = asyncio.create_task(path.turns.run(await path.claim()))
            await blocked(path.database, asyncio.shield(run))
        await run
        async with held(path.database, "select from sessions for no key update"):
            second = await blocked(path.database, path.tell("second"))
        accepted = await second
        assert await path.rows(LIVE) == [(1,)]
        async with path.working():
            assert (await path.answer(accepted)).text == "re: second"

    async def test_new_against_the_end_of_a_turn_leaves_it_answered_or_closed(self, path: MessagePath) -> None:
        async with path.working():
            for _ in range(15):
                path.model.gate = asyncio.Event()
                path.model.called.clear()
                first = await path.tell("old")
                await path.model.called.wait()
                path.model.gate.set()
                await path.tell("/new")
                assert (await path.answer(first)).text in ("re: old", "Stopped.")
                assert await path.ask("new") == "re: new"
        assert await path.rows(OPEN) == NONE
        assert await path.rows(LIVE) == NONE
        kept = await path.rows(
            "select count(*) from messages m join messages a on a.id = m.answered_by where a.session_id <> m.session_id"
        )
        assert kept == NONE

    async def test_stop_against_the_end_of_a_turn_leaves_it_answered_or_closed(self, path: MessagePath) -> None:
        async with path.working():
            for _ in range(15):
                path.model.gate = asyncio.Event()
                path.model.called.clear()
                first = await path.tell("hello")
                await path.model.called.wait()
                path.model.gate.set()
                await path.tell("/stop")
                answer = await path.answer(first)
                assert answer.text == "Stopped." or answer.text.endswith("hello")
        assert await path.rows(OPEN) == NONE
        assert await path.rows(LIVE) == NONE

    async def test_every_write_of_a_turn_waits_for_the_session_before_it_locks_its_task(
        self, path: MessagePath
    ) -> None:
        """As an arriving message does; the other way round the two would lock each other out."""
        start, asked_once, looked, asked_twice = (asyncio.Event() for _ in range(4))
        reached: asyncio.Queue[None] = asyncio.Queue()

        async def look() -> None:
            reached.put_nowait(None)
            await looked.wait()

        def reply(_: Prompt) -> Reply:
            path.model.gate = asked_twice
            return next(replies)

        replies = iter([said("", call("look", text="x")), said("done")])
        path.model.answer, path.model.gate, path.workshop.during = reply, asked_once, look
        await path.tell("hello")
        async with held(path.database, "select from sessions for no key update"):
            claimed = await path.claim()  # which leaves a locked chat to its run, and waits for nobody

        async def turn() -> None:
            await start.wait()
            await path.turns.run(claimed)

        run = asyncio.create_task(turn())
        await stops_at_the_session(path, run, start)
        await path.model.called.wait()
        path.model.called.clear()
        await stops_at_the_session(path, run, asked_once)
        await reached.get()
        await stops_at_the_session(path, run, looked)
        await path.model.called.wait()
        await stops_at_the_session(path, run, asked_twice)
        await run
        assert await path.rows(OPEN) == NONE


async def stops_at_the_session(path: MessagePath, run: "asyncio.Task[None]", go: asyncio.Event) -> None:
    """Somebody holds the session when the run goes on: it waits, and has not locked its task."""
    async with held(path.database, "select from sessions for no key update") as other:
        go.set()
        await blocked(path.database, asyncio.shield(run))
        await other.execute("select from tasks for update nowait")

"""A prompt that nobody waits for: worked on apart, told in its person's chat."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from gateway.agent.limits import Limits
from gateway.agent.loop import NO_ANSWER
from gateway.config.failpoints import Failpoints, Step
from gateway.domain.conversation.inbound import Address
from gateway.domain.conversation.model import (
    AssistantMessage,
    Attempt,
    ModelsExhausted,
    Prompt,
    Reply,
    ToolMessage,
    UserMessage,
)
from gateway.domain.errors import RunLost
from gateway.domain.people.access import Access
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.flow.live import MessageStored
from gateway.store.connection.pool import Database
from gateway.store.transcript import sessions
from gateway.store.work import schedules, tasks
from tests.flow.appointments import address_of, fire, known, last_run, noted, plan, status, trigger, work
from tests.flow.path import (
    MEMBER,
    OWNER,
    FakeModel,
    MessagePath,
    asked,
    build,
    call,
    crash,
    in_turn,
    restarted,
    results,
    said,
)

WEB, TERMINAL = Address("web", "owner", "main"), Address("terminal", "owner", "main")
NO_MODEL = ModelsExhausted("No model answered:\n1. gpt: 401 bad key", (Attempt("gpt", "auth", "401 bad key"),))


def reply(text: str) -> Callable[[Prompt], Reply | Exception]:
    return lambda _: said(text)


async def chat(path: MessagePath) -> list[tuple[str, str]]:
    """Kind and text of what is said in the owner's chat."""
    return await path.rows(
        """select m.kind, m.text from messages m join addresses a on a.session_id = m.session_id
           where a.channel = 'fake' and a.chat = $1 order by m.seq""",
        OWNER,
    )


def words(prompt: Prompt) -> str:
    """The last message, whole."""
    last = prompt.messages[-1]
    assert isinstance(last, UserMessage)
    return last.text


async def greet(path: MessagePath, **more: str) -> None:
    """The owner, or whoever is named, has written here, and was answered."""
    await path.tell("hello", **more)
    await path.turns.run(await path.claim())


class TestResult:
    async def test_it_is_said_in_the_chat_and_one_can_talk_about_it(self, path: MessagePath) -> None:
        path.model.answer = reply("Time to stretch.")
        async with path.working():
            await path.ask("hello")
            task = await fire(path, await plan(path))
            path.signals.tasks.set()
            await path.channel.until(lambda texts: len(texts) == 2)
            await path.worker.settle()
            path.model.answer = FakeModel().answer
            assert await path.ask("what was that?") == "re: what was that?"
            shown = await path.channel.until(lambda texts: len(texts) == 3)
        assert shown == ["Time to stretch.", "Time to stretch.", "re: what was that?"]
        assert await chat(path) == [
            ("user", "hello"),
            ("assistant", "Time to stretch."),
            ("assistant", "Time to stretch."),
            ("user", "what was that?"),
            ("assistant", "re: what was that?"),
        ]
        assert await path.rows(
            "select origin, final, label from messages where task_id = $1 and address_id > 0", task
        ) == [("schedule", False, 0)]
        [known] = [m.text for m in path.model.prompts[-1].messages if isinstance(m, AssistantMessage)]
        assert known == "Time to stretch.\n\nTime to stretch."

    async def test_it_starts_no_turn(self, path: MessagePath) -> None:
        await greet(path)
        await fire(path, await plan(path))
        await work(path)
        assert await path.rows("select count(*) from tasks where status in ('pending', 'running')") == [(0,)]
        assert len(path.model.prompts) == 2

    async def test_executed_and_produced_are_noted_and_delivered_is_not_yet(self, path: MessagePath) -> None:
        await greet(path)
        row = await plan(path)
        task = await fire(path, row)
        await work(path)
        run = await last_run(path, row)
        assert noted(run) == ["executed", "produced", "message"]
        assert await status(path, task) == "completed"
        async with path.database.connection() as conn:
            report = await tasks.report(conn, task)
        assert report is not None
        assert report.delivery == ("pending",)

    async def test_it_is_in_a_session_of_its_own_that_knows_nothing_of_the_chat(self, path: MessagePath) -> None:
        await greet(path)
        task = await fire(path, await plan(path))
        await work(path)
        assert "hello" not in repr(path.model.prompts[-1].messages[1:])
        assert await path.rows(
            """select m.kind, m.answered_by is not null from messages m join tasks t on t.session_id = m.session_id
               where t.id = $1 order by m.seq""",
            task,
        ) == [("user", True), ("assistant", False)]

    async def test_its_session_ends_with_it_and_is_filed(self, path: MessagePath) -> None:
        await greet(path)
        task = await fire(path, await plan(path))
        await work(path)
        [(ended,)] = await path.rows(
            "select s.ended_at is not null from sessions s join tasks t on t.session_id = s.id where t.id = $1", task
        )
        assert ended
        await path.journal.catch_up()
        assert await path.rows("select count(*) from journals where closed_at is null") == [(1,)]
        assert await path.rows("select count(*) from journals where filed_at is not null") == [(1,)]

    async def test_with_history_it_knows_the_chat_and_is_trusted_no_more_than_that(self, path: MessagePath) -> None:
        here = await path.tell("my dog is called Rex")
        await path.turns.run(await path.claim())
        async with path.database.transaction() as tx:
            assert here.session_id is not None
            await sessions.taint(tx, here.session_id, Label.UNTRUSTED)
        at = await address_of(path, here.session_id)
        task = await fire(path, await plan(path, history=True, address=at))
        await work(path)
        assert "my dog is called Rex" in repr(path.model.prompts[-1])
        assert words(path.model.prompts[-1]).endswith("Stretch!")
        [(label,)] = await path.rows(
            "select s.label from sessions s join tasks t on t.session_id = s.id where t.id = $1", task
        )
        assert label == Label.UNTRUSTED

    async def test_a_question_that_waits_in_the_chat_is_left_to_the_turn_that_answers_it(
        self, path: MessagePath
    ) -> None:
        here = await path.tell("my dog is called Rex")
        await path.turns.run(await path.claim())
        await fire(path, await plan(path, history=True, address=await address_of(path, here.session_id)))
        path.model.gate = asyncio.Event()
        path.model.called.clear()
        await path.tell("what is 1 + 1?")
        turn = asyncio.create_task(path.turns.run(await path.claim()))
        await path.model.called.wait()
        path.model.called.clear()
        run = asyncio.create_task(work(path))
        await path.model.called.wait()
        path.model.gate.set()
        await asyncio.gather(turn, run)
        assert "Rex" in repr(path.model.prompts[-1])
        assert "1 + 1" not in repr(path.model.prompts[-1])
        assert ("assistant", "re: what is 1 + 1?") in await chat(path)

    async def test_somebody_elses_chat_is_no_history(self, path: MessagePath) -> None:
        here = await path.tell("my secret", chat=MEMBER, sender=MEMBER)
        await path.turns.run(await path.claim())
        await fire(path, await plan(path, history=True, address=await address_of(path, here.session_id)))
        await work(path)
        assert "my secret" not in repr(path.model.prompts[-1])

    @pytest.mark.parametrize("text", ["nothing to report", '"Nothing to report."', "**nothing  to\nreport**"])
    async def test_nothing_to_report_is_told_to_nobody(self, path: MessagePath, text: str) -> None:
        await greet(path)
        path.model.answer = reply(text)
        row = await plan(path)
        task = await fire(path, row)
        await work(path)
        assert noted(await last_run(path, row)) == ["executed"]
        assert len(await chat(path)) == 2
        assert await status(path, task) == "completed"

    async def test_a_run_that_was_stopped_tells_what_it_has(self, database: Database, workspace: Path) -> None:
        path = await build(database, workspace, FakeModel(), limits=Limits(model_calls=2))
        await greet(path)
        path.model.answer = lambda _: said("", call("look", text="x"))
        row = await plan(path)
        await fire(path, row)
        await work(path)
        assert "I stopped early" in (await chat(path))[-1][1]
        assert (await last_run(path, row)).executed_at

    async def test_a_long_answer_goes_as_its_beginning_and_a_file(self, database: Database, workspace: Path) -> None:
        path = await build(database, workspace, FakeModel())
        path.channel.capabilities = replace(path.channel.capabilities, max_text=1000, max_file=10**6)
        await greet(path)
        path.model.answer = reply("word " * 2000)
        await fire(path, await plan(path))
        await work(path)
        parts = await path.rows("select file_id is not null from outbox order by id desc limit 2")
        assert parts == [(True,), (False,)]
        assert (await chat(path))[-1] == ("assistant", ("word " * 2000).strip())

    async def test_it_is_as_little_trusted_as_what_it_was_made_of(self, path: MessagePath) -> None:
        await greet(path)
        await trigger(path)
        await work(path)
        assert await path.rows(
            """select m.label, m.origin, s.label from messages m join sessions s on s.id = m.session_id
               where m.address_id is not null and m.origin = 'trigger'"""
        ) == [(Label.UNTRUSTED, "trigger", Label.UNTRUSTED)]

    async def test_a_trigger_that_is_to_be_told_nowhere_is_told_nowhere(self, path: MessagePath) -> None:
        await greet(path)
        task = await trigger(path, deliver=False)
        await work(path)
        assert len(await chat(path)) == 2
        assert await status(path, task) == "completed"

    async def test_whoever_looks_at_the_chat_sees_it_at_once(self, path: MessagePath) -> None:
        here = await path.tell("hello")
        await path.turns.run(await path.claim())
        await fire(path, await plan(path))
        assert here.session_id is not None
        with path.live.subscribe(here.session_id) as events:
            await work(path)
            [stored] = events.ready()
        assert isinstance(stored, MessageStored)

    async def test_whoever_looks_what_is_due_hears_that_a_slot_is_over(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        heard: list[str] = []
        monkeypatch.setattr(path.signals.schedules, "set", lambda: heard.append("schedules"))
        await greet(path)
        await fire(path, await plan(path))
        await work(path)
        await trigger(path)
        await work(path)
        assert heard == ["schedules"]

    async def test_its_file_ends_in_a_folder_of_its_own_and_no_index_names_it(self, path: MessagePath) -> None:
        path.model.answer = reply("Time to stretch.")
        await fire(path, await plan(path))
        await work(path)
        await trigger(path)
        await work(path)
        await trigger(path, name="ci/main")
        await work(path)
        for _ in range(2):
            assert await path.journal.catch_up()
        filed = sorted((path.workspace / "memory").rglob("*"))
        runs = [each for each in filed if each.is_file()]
        opened = await path.rows(
            "select to_char(opened_at at time zone 'utc', 'YYYY-MM'), id from journals order by id"
        )
        assert [str(each.relative_to(path.workspace)) for each in runs] == [
            f"memory/runs/{month}/{id}.md" for month, id in opened[:2]
        ]
        assert all("Time to stretch." in each.read_text() for each in runs)
        assert len(list((path.workspace / "sessions").rglob("*.md"))) == 1

    async def test_without_any_chat_the_answer_is_kept_and_the_slot_says_so(self, path: MessagePath) -> None:
        path.model.answer = reply("Time to stretch.")
        row = await plan(path)
        task = await fire(path, row)
        await work(path)
        run = await last_run(path, row)
        assert noted(run) == ["executed", "produced", "error"]
        assert run.error == "no chat to deliver to"
        async with path.database.connection() as conn:
            report = await tasks.report(conn, task)
        assert report is not None
        assert report.result == "Time to stretch."


class TestFailure:
    async def test_its_person_is_told_once_with_what_it_was_to_do(self, path: MessagePath) -> None:
        await greet(path)
        path.model.answer = lambda _: NO_MODEL
        row = await plan(path)
        for day in range(3):
            task = await fire(path, row, day)
            await work(path)
            assert await status(path, task) == "failed"
        told = [text for kind, text in await chat(path) if kind == "notice"]
        assert told == [
            'The schedule "Stand-up", planned for Mon 23 Nov 2026 08:30 Europe/Berlin, failed: '
            "No model answered: 1. gpt: 401 bad key\n\nIt was meant to do this:\nStretch!\n\n"
            "I won't repeat this until it works again."
        ]
        run = await last_run(path, row)
        assert run.error == "No model answered: 1. gpt: 401 bad key"
        assert noted(run) == ["error"]
        assert (await known(path, row)).failing_since

    async def test_when_it_works_again_that_is_told_once(self, path: MessagePath) -> None:
        await greet(path)
        row = await plan(path)
        path.model.answer = in_turn(NO_MODEL, said("nothing to report"), said("nothing to report"))
        for day in range(3):
            await fire(path, row, day)
            await work(path)
        told = [text for kind, text in await chat(path) if kind == "notice"]
        assert told[1:] == ['The schedule "Stand-up" works again.']
        assert (await known(path, row)).failing_since is None

    async def test_what_runs_only_once_is_told_of_each_time(self, path: MessagePath) -> None:
        await greet(path)
        path.model.answer = lambda _: NO_MODEL
        row = await plan(path, once=True)
        for day in range(2):
            await fire(path, row, day)
            await work(path)
        told = [text for kind, text in await chat(path) if kind == "notice"]
        assert len(told) == 2
        assert told[0].endswith("It was meant to do this:\nStretch!")

    async def test_no_answer_is_a_failure_and_no_silence(self, path: MessagePath) -> None:
        await greet(path)
        path.model.answer = reply("")
        row = await plan(path)
        await fire(path, row)
        await work(path)
        assert (await last_run(path, row)).error == "the model gave an empty answer"
        assert [kind for kind, _ in await chat(path)][-1] == "notice"
        assert NO_ANSWER not in repr(await chat(path))

    async def test_without_money_no_model_is_asked_and_its_person_hears_of_it(
        self, database: Database, workspace: Path
    ) -> None:
        path = await build(database, workspace, FakeModel(), limits=Limits(day_usd=0.0001))
        await greet(path)
        asked_before = len(path.model.prompts)
        row = await plan(path)
        await fire(path, row)
        await work(path)
        assert len(path.model.prompts) == asked_before
        assert (await last_run(path, row)).error
        assert "Stretch!" in (await chat(path))[-1][1]

    async def test_out_of_attempts_is_told(self, path: MessagePath) -> None:
        await greet(path)
        row = await plan(path)
        task = await fire(path, row)
        await path.agent.give_up(await path.claim(Lane.AGENTS))
        assert (await last_run(path, row)).error == "3 attempts failed; the log says why"
        assert await status(path, task) == "failed"
        assert "Stretch!" in (await chat(path))[-1][1]

    async def test_a_member_is_told_no_providers_details(self, path: MessagePath) -> None:
        here = await path.tell("hello", chat=MEMBER, sender=MEMBER)
        await path.turns.run(await path.claim())
        [(member,)] = await path.rows("select principal_id from sessions where id = $1", here.session_id)
        path.model.answer = lambda _: NO_MODEL
        row = await plan(path, principal=member)
        task = await fire(path, row)
        await work(path)
        assert (await last_run(path, row)).error == "no model answered"
        assert "401" not in repr(await path.rows("select text from messages"))
        assert await path.rows("select error from tasks where id = $1", task) == [("no model answered",)]

    async def test_a_source_that_fails_is_told_of_once_an_hour(self, path: MessagePath) -> None:
        await greet(path)
        path.model.answer = lambda _: NO_MODEL
        for source in ("ci", "ci", "shop"):
            await trigger(path, "obey me", source=source)
            await work(path)
        told = [text for kind, text in await chat(path) if kind == "notice"]
        assert [text.partition(" could")[0] for text in told] == ["What ci sent", "What shop sent"]
        assert "obey me" not in repr(told)
        await path.rows("update tasks set updated_at = updated_at - interval '1 hour' returning id")
        await trigger(path, source="ci")
        await work(path)
        assert len([kind for kind, _ in await chat(path) if kind == "notice"]) == 3


class TestWanted:
    async def test_of_a_schedule_that_is_gone_nothing_is_run(self, path: MessagePath) -> None:
        await greet(path)
        row = await plan(path)
        task = await fire(path, row)
        async with path.database.transaction() as tx:
            await schedules.remove(tx, row.id)
        await work(path)
        assert await status(path, task) == "cancelled"
        assert len(path.model.prompts) == 1
        assert len(await chat(path)) == 2

    async def test_of_one_that_is_removed_while_it_runs_nothing_is_told(self, path: MessagePath) -> None:
        await greet(path)
        row = await plan(path)
        task = await fire(path, row)
        path.model.gate = asyncio.Event()
        path.model.called.clear()
        run = asyncio.create_task(work(path))
        await path.model.called.wait()
        async with path.database.transaction() as tx:
            await schedules.remove(tx, row.id)
        path.model.gate.set()
        await run
        assert await status(path, task) == "cancelled"
        assert len(await chat(path)) == 2
        assert await path.rows("select count(*) from messages where task_id = $1 and kind = 'assistant'", task) == [
            (1,)
        ]

    async def test_one_whose_task_is_cancelled_while_it_runs_tells_nothing(self, path: MessagePath) -> None:
        await greet(path)
        task = await fire(path, await plan(path))
        path.model.gate = asyncio.Event()
        path.model.called.clear()
        run = asyncio.create_task(work(path))
        await path.model.called.wait()
        async with path.database.transaction() as tx:
            await tasks.cancel(tx, task)
        path.model.gate.set()
        with pytest.raises(RunLost):
            await run
        assert len(await chat(path)) == 2

    async def test_for_a_person_who_is_not_let_in_any_more_nothing_is_run(self, path: MessagePath) -> None:
        here = await path.tell("hello", chat=MEMBER, sender=MEMBER)
        await path.turns.run(await path.claim())
        [(member,)] = await path.rows("select principal_id from sessions where id = $1", here.session_id)
        row = await plan(path, principal=member)
        task = await fire(path, row)
        path.people.allow({"fake": Access("allowlist", frozenset({OWNER}))})
        await work(path)
        assert await status(path, task) == "cancelled"
        assert len(path.model.prompts) == 1
        assert (await last_run(path, row)).error == "its person no longer has access"

    async def test_what_a_crash_left_of_one_that_nobody_wants_any_more_is_over(self, path: MessagePath) -> None:
        row = await plan(path)
        task = await fire(path, row)
        path.model.answer = lambda _: ValueError("broken")
        with pytest.raises(ValueError, match="broken"):
            await work(path)
        again = await restarted(path)
        await again.journal.catch_up()
        async with path.database.transaction() as tx:
            await schedules.remove(tx, row.id)
        await work(again)
        assert await status(path, task) == "cancelled"
        assert await path.rows("select ended_at is not null from sessions") == [(True,)]
        assert await path.rows("select closed_at is not null from journals") == [(True,)]
        assert await path.rows("select closed_at is not null from messages") == [(True,)]

    async def test_a_members_run_works_at_home_with_the_members_rows_alone(self, path: MessagePath) -> None:
        await greet(path)
        here = await path.tell("hello", chat=MEMBER, sender=MEMBER)
        await path.turns.run(await path.claim())
        [(member,)] = await path.rows("select principal_id from sessions where id = $1", here.session_id)
        path.model.answer = in_turn(said("", call("write_file", path="notes.md", content="mine")), said("done"))
        row = await plan(path, principal=member, label=Label.KNOWN)
        task = await fire(path, row)
        await work(path)
        assert not (path.workspace / "notes.md").exists()
        assert results(path.model.prompts[-1])[0].get("error") is None
        owned = await path.rows("select distinct principal_id from messages where task_id = $1", task)
        assert owned == [(member,)]
        assert await path.rows(
            "select a.chat from outbox o join addresses a on a.id = o.address_id where o.text = 'done'"
        ) == [(MEMBER,)]


class TestConversation:
    async def test_triggers_of_one_conversation_run_one_after_another(self, path: MessagePath) -> None:
        first, second = await trigger(path, "one", name="ci/main"), await trigger(path, "two", name="ci/main")
        other = await trigger(path, "three")
        async with path.database.connection() as conn:
            runs = {run.id: run for run in await tasks.claim(conn, path.instance, {Lane.AGENTS: 3})}
        await path.agent.run(runs[second])
        assert path.model.prompts == []
        assert await path.rows("select status, attempts from tasks where id = $1", second) == [("pending", 0)]
        await path.agent.run(runs[other])
        await path.agent.run(runs[first])
        await path.rows("update tasks set run_at = now() where id = $1 returning id", second)
        await work(path)
        assert [asked(prompt) for prompt in path.model.prompts] == ["three", "one", "two"]
        assert "re: one" in repr(path.model.prompts[-1])
        assert await path.rows("select name, ended_at is null from sessions where name is not null") == [
            ("ci/main", True)
        ]

    async def test_the_more_wait_before_it_the_later_one_looks_again(self, path: MessagePath) -> None:
        sent = [await trigger(path, str(number), name="ci/main") for number in range(4)]
        async with path.database.connection() as conn:
            runs = {run.id: run for run in await tasks.claim(conn, path.instance, {Lane.AGENTS: 4})}
        for task in sent[1:]:
            await path.agent.run(runs[task])
        rests = await path.rows("select run_at - updated_at from tasks where status = 'pending' order by seq")
        assert rests == [(timedelta(seconds=number),) for number in (1, 2, 3)]

    async def test_what_a_cancelled_one_left_open_is_not_answered_by_the_next(self, path: MessagePath) -> None:
        first = await trigger(path, "one", name="ci/main")
        path.model.answer = lambda _: ValueError("broken")
        with pytest.raises(ValueError, match="broken"):
            await work(path)
        async with path.database.transaction() as tx:
            await tasks.cancel(tx, first)
        path.model.answer = FakeModel().answer
        await trigger(path, "two", name="ci/main")
        await work(path)
        assert await path.rows("select text, answered_by is null from messages where kind = 'user' order by seq") == [
            ("one", True),
            ("two", False),
        ]


class TestCrash:
    async def test_the_prompt_is_said_once_and_no_tool_runs_twice(self, path: MessagePath) -> None:
        await greet(path)
        path.model.answer = in_turn(said("", call("send", text="a")))
        await fire(path, await plan(path))
        inside = asyncio.Event()

        async def hang() -> None:
            inside.set()
            await asyncio.Event().wait()

        path.workshop.during = hang
        run = asyncio.create_task(work(path))
        await inside.wait()
        await crash(run)
        again = await restarted(path, FakeModel(answer=lambda _: said("done")))
        await work(again)
        assert again.workshop.ran == []
        assert results(again.model.prompts[0])[0]["error"] == "may_have_run"
        assert await path.rows("select count(*) from messages where kind = 'user' and origin = 'schedule'") == [(1,)]
        assert (await chat(path))[-1] == ("assistant", "done")

    @pytest.mark.parametrize("step", [Step.TURN_CLAIMED, Step.TURN_TAKEN, Step.MODEL_REPLIED, Step.ANSWER_READY])
    async def test_a_crash_before_the_end_costs_nothing(self, database: Database, workspace: Path, step: Step) -> None:
        path = await build(database, workspace, FakeModel())
        await greet(path)
        row = await plan(path)
        await fire(path, row)
        dying = await build(database, workspace, FakeModel(), path.instance, failpoints=Dying(step))
        with pytest.raises(PowerCutError):
            await work(dying)
        assert (await last_run(path, row)).executed_at is None
        again = await restarted(path)
        await work(again)
        assert [kind for kind, _ in await chat(path)] == ["user", "assistant", "assistant"]
        assert (await last_run(path, row)).produced_at
        assert await path.rows("select count(*) from messages where kind = 'user' and origin = 'schedule'") == [(1,)]

    async def test_a_crash_after_the_end_says_nothing_twice(self, database: Database, workspace: Path) -> None:
        path = await build(database, workspace, FakeModel())
        await greet(path)
        await fire(path, await plan(path))
        dying = await build(database, workspace, FakeModel(), path.instance, failpoints=Dying(Step.ANSWER_COMMITTED))
        with pytest.raises(PowerCutError):
            await work(dying)
        again = await restarted(path)
        assert await path.rows("select count(*) from tasks where status = 'pending'") == [(0,)]
        async with again.working():
            await again.channel.until(lambda texts: len(texts) == 2)
        assert len(again.channel.texts) == 2


async def test_runs_that_tell_and_turns_that_send_never_wait_in_a_circle(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.connection.pool._TRIES", 1)
    await greet(path)
    row, rounds = await plan(path), 15

    def answer(prompt: Prompt) -> Reply:
        if isinstance(prompt.messages[-1], ToolMessage) or "Scheduled task" in words(prompt):
            return said("told")
        return said("", call("send_message", text="ping"), call("look", text="x"))

    async def chats() -> None:
        for number in range(rounds):
            await path.tell(f"go {number}")
            await path.turns.run(await path.claim())

    async def runs() -> None:
        for day in range(rounds):
            await fire(path, row, day)
            await work(path)

    async def settles() -> None:
        for _ in range(rounds):
            await path.follow_up.settle()

    path.model.answer = answer
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(path.outbound.run())
        await asyncio.gather(chats(), runs(), settles())
        sending.cancel()
    assert len([text for _, text in await chat(path) if text == "told"]) == 2 * rounds
    assert await path.rows("select count(*) from tasks where status <> 'completed'") == [(0,)]


class PowerCutError(BaseException):
    """Nothing is written any more."""


class Dying(Failpoints):
    """Ends a run as a power cut would, at one step."""

    def __init__(self, step: Step) -> None:
        super().__init__(None)
        self._at = step

    def reach(self, step: Step) -> None:
        if step is self._at:
            raise PowerCutError

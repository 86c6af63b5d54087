"""What a heartbeat asks, what is told of it, and what is kept."""

import asyncio
from datetime import UTC, datetime
from typing import Protocol

import pytest

from gateway.agent.limits import Limits
from gateway.agent.loop import NO_ANSWER
from gateway.domain.conversation.model import Attempt, ModelsExhausted, Prompt, Reply, SystemMessage, UserMessage
from gateway.domain.errors import RunLost
from gateway.domain.health import HeartbeatOutcome
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.store.work import heartbeats, tasks
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace
from tests.background.heart import MINUTE, NOON, Heart, heart
from tests.flow.path import FakeModel, MessagePath, call, in_turn, said

BUSY = ModelsExhausted("All are busy.", (Attempt("a", "auth", "401"), Attempt("b", "rate_limit", "429")))
REFUSED = ModelsExhausted("No key works.", (Attempt("a", "auth", "401"), Attempt("b", "auth", "403")))
HEARD = "select kind, text, origin, label from messages where address_id is not null and kind <> 'user'"
SILENCE = said("heartbeat ok")


class Beat(Protocol):
    async def __call__(self, answer: Reply | Exception = SILENCE) -> HeartbeatOutcome: ...


@pytest.fixture
async def beating(path: MessagePath) -> Heart:
    """With something to do, and an owner who wrote once and was answered."""
    beating = heart(path)
    beating.instruct()
    await path.tell("hello")
    await path.rows("update messages set closed_at = now()")
    await path.rows("delete from tasks")
    return beating


@pytest.fixture
def beat(beating: Heart) -> Beat:
    """One heartbeat, to which the model answers this; a gateway that has run on for half an hour."""

    async def beat(answer: Reply | Exception = SILENCE) -> HeartbeatOutcome:
        beating.model.answer = in_turn(answer)
        beating.clock.at += 30 * MINUTE
        await beating.timer.beat()
        await beating.work()
        return (await beating.pulse()).outcome

    return beat


def system(prompt: Prompt) -> str:
    [standing] = [message.text for message in prompt.messages if isinstance(message, SystemMessage)]
    return standing


def question(prompt: Prompt) -> str:
    [asked] = [message.text for message in prompt.messages if isinstance(message, UserMessage)]
    return asked


class TestPrompt:
    async def test_the_files_come_in_their_order_and_the_heartbeats_message_last(
        self, beating: Heart, beat: Beat
    ) -> None:
        for name in ("AGENTS", "SOUL", "TOOLS", "USER"):
            (beating.path.workspace / f"{name}.md").write_text(f"text of {name}")
        await beat()
        [prompt] = beating.model.prompts

        places = [
            system(prompt).index(f"=== {name}.md ===") for name in ("AGENTS", "SOUL", "TOOLS", "USER", "HEARTBEAT")
        ]
        assert places == sorted(places)
        assert "Is anything due today?" in system(prompt)
        assert "It is Sat 21 Nov 2026 13:30 Europe/Berlin." in question(prompt)
        assert question(prompt).endswith("If nothing is, answer exactly this, untranslated: heartbeat ok")

    async def test_nothing_that_was_said_before_is_in_it(self, beating: Heart, beat: Beat) -> None:
        await beat(said("news!"))
        await beat()

        assert all("hello" not in question(prompt) + system(prompt) for prompt in beating.model.prompts)
        assert "news!" not in question(beating.model.prompts[-1])

    async def test_what_was_noticed_is_in_it_and_so_is_its_trust(self, beating: Heart, beat: Beat) -> None:
        beating.instruct("<!-- nothing -->")
        beating.clock.at += MINUTE
        await beating.timer.beat()
        await beating.fail("weather `report`", NOON + 5 * MINUTE, label=Label.UNTRUSTED)
        await beat(said("Your weather report failed."))

        assert '- "weather report" failed on Sat 21 Nov 2026 13:05 Europe/Berlin.' in question(beating.model.prompts[0])
        assert await beating.path.rows(HEARD) == [
            ("assistant", "From heartbeat (not verified):\n\nYour weather report failed.", "heartbeat", Label.UNTRUSTED)
        ]

    async def test_a_zone_that_is_not_known_is_utc(self, beating: Heart, beat: Beat) -> None:
        beating.zone = None
        await beat()

        assert "It is Sat 21 Nov 2026 12:30 UTC." in question(beating.model.prompts[0])


class TestTelling:
    @pytest.mark.parametrize("answer", ["heartbeat ok", "HEARTBEAT OK.", " **Heartbeat ok** \n", '"heartbeat  ok"'])
    async def test_when_there_is_nothing_nobody_hears_of_it(self, beating: Heart, beat: Beat, answer: str) -> None:
        assert await beat(said(answer)) is HeartbeatOutcome.OK
        assert await beating.path.rows(HEARD) == []
        assert await beating.asked() == [("completed",)]

    async def test_news_is_told_where_the_owner_wrote_last(self, beating: Heart, beat: Beat) -> None:
        assert await beat(said("heartbeat ok, but the rent is due")) is HeartbeatOutcome.TOLD
        assert await beating.path.rows(HEARD) == [
            ("assistant", "heartbeat ok, but the rent is due", "heartbeat", Label.OWNER)
        ]
        assert await beating.path.rows("select text, state from outbox") == [
            ("heartbeat ok, but the rent is due", "pending")
        ]
        assert (await beating.pulse()).beat.text == "heartbeat ok, but the rent is due"

    @pytest.mark.parametrize(("to", "channel"), [(None, "web"), ("fake", "fake"), ("slack", "web")])
    async def test_it_goes_to_the_channel_that_is_configured_if_there_is_a_chat(
        self, beating: Heart, beat: Beat, to: str | None, channel: str
    ) -> None:
        await beating.path.rows(
            """with page as (
                 insert into addresses (principal_id, channel, account, chat, private, session_id)
                 select principal_id, 'web', '', 'main', true, session_id from addresses returning *)
               insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, platform_time)
               select principal_id, id, 'web', '', 'main', '1', 'command', now() from page"""
        )
        beating.configure(to=to)
        await beat(said("news"))

        assert await beating.path.rows(
            "select a.channel from messages m join addresses a on a.id = m.address_id where m.kind = 'assistant'"
        ) == [(channel,)]

    async def test_an_owner_who_cannot_be_told_finds_it_in_the_files(self, beating: Heart, beat: Beat) -> None:
        await beating.path.rows("delete from inbox")

        assert await beat(said("news")) is HeartbeatOutcome.TOLD
        assert await beating.path.rows(HEARD) == []
        assert "news" in (await beating.kept())["2026-11-21/12-30.md"]

    async def test_a_model_of_its_own_is_asked(self, beating: Heart, beat: Beat) -> None:
        beating.model = FakeModel()
        await beat()

        assert len(beating.model.prompts) == 1
        assert beating.path.model.prompts == []

    async def test_its_conversation_is_over_with_it(self, beating: Heart, beat: Beat) -> None:
        await beat()

        assert await beating.path.rows(
            "select s.ended_at is null from sessions s join tasks t on t.session_id = s.id where t.kind = 'heartbeat'"
        ) == [(False,)]

    async def test_what_it_costs_is_in_the_books(self, beating: Heart, beat: Beat) -> None:
        await beat()
        async with beating.path.database.connection() as conn:
            assert await heartbeats.spent(conn, NOON.replace(hour=0)) == 0.001

    async def test_tools_work_as_in_a_chat(self, beating: Heart) -> None:
        beating.model.answer = in_turn(said("", call("list_files")), said("heartbeat ok"))
        await beating.timer.beat()
        await beating.work()

        assert (await beating.pulse()).outcome is HeartbeatOutcome.OK


class TestFiles:
    async def test_each_has_its_file_named_after_its_minute_a_second_one_of_that_after_its_second(
        self, beating: Heart, beat: Beat
    ) -> None:
        await beat()
        beating.clock.at -= 30 * MINUTE
        await beat(said("news"))
        await beat(BUSY)

        kept = await beating.kept()
        assert list(kept) == ["2026-11-21/12-30-00.md", "2026-11-21/12-30.md", "2026-11-21/13-00.md"]
        answers = ["news", "heartbeat ok", "All are busy."]
        assert [answer in text for answer, text in zip(answers, kept.values(), strict=True)] == [True] * 3

    async def test_their_files_stay_where_they_are_and_no_index_names_them(self, beating: Heart, beat: Beat) -> None:
        await beat(said("news"))
        journal, workspace = beating.path.journal, beating.path.workspace
        for _ in range(2):
            assert await journal.unstored() == []
            journal.check.begun(beating.path.inbound.restore)
            await journal.check.put_right()
            await journal.catch_up()

        assert "news" in (await beating.kept())["2026-11-21/12-30.md"]
        assert not (workspace.parent / "journal" / "damaged").exists()
        assert not (workspace / "memory").exists()

    async def test_one_that_died_goes_on_in_its_file(self, beating: Heart) -> None:
        beating.model.answer = in_turn(ZeroDivisionError(), said("news"))
        await beating.timer.beat()
        with pytest.raises(ZeroDivisionError):
            await beating.work()
        async with beating.path.database.connection() as conn:
            await tasks.died(conn, beating.path.instance)
        await beating.work()

        kept = await beating.kept()
        assert list(kept) == ["2026-11-21/12-00.md"]
        assert "news" in kept["2026-11-21/12-00.md"]

    async def test_the_agent_reads_them_and_does_not_write_there(self, beating: Heart, beat: Beat) -> None:
        await beat(said("news"))
        await beating.kept()
        workspace, path = Workspace(beating.path.workspace), "sessions/heartbeat/2026-11-21/12-30.md"

        found = workspace.head(path, 1000)
        assert found is not None
        assert b"news" in found.data
        with pytest.raises(WorkspaceError, match="read-only"):
            await workspace.write(path, "nothing happened", Label.OWNER)

    async def test_a_workspace_that_takes_no_file_stops_nothing(self, beating: Heart, beat: Beat) -> None:
        (beating.path.workspace / "sessions" / "heartbeat").write_text("in the way")

        assert await beat(said("news")) is HeartbeatOutcome.TOLD


class TestFailures:
    async def test_they_are_told_once_until_one_works(self, beating: Heart, beat: Beat) -> None:
        told = []
        for answer in (BUSY, BUSY, said("heartbeat ok"), BUSY):
            await beat(answer)
            told.append(len(await beating.path.rows(HEARD)))

        assert told == [1, 1, 1, 2]
        assert await beating.path.rows(f"{HEARD} limit 1") == [
            (
                "notice",
                "The heartbeat failed: no model answered (the last was b: rate_limit). The next one will retry; "
                "/status shows how it goes.",
                "heartbeat",
                Label.OWNER,
            )
        ]

    async def test_what_one_that_failed_was_about_is_looked_at_again(self, beating: Heart, beat: Beat) -> None:
        beating.instruct("")
        beating.clock.at += MINUTE
        await beating.timer.beat()
        await beating.fail("news", NOON + 5 * MINUTE)
        await beat(BUSY)
        await beat()
        await beating.timer.beat()

        assert [status for (status,) in await beating.asked()] == ["failed", "completed"]

    async def test_an_empty_answer_is_a_failure(self, beating: Heart, beat: Beat) -> None:
        assert await beat(said("")) is HeartbeatOutcome.FAILED
        [(_, notice, *_)] = await beating.path.rows(HEARD)
        assert "the model gave an empty answer" in notice
        assert NO_ANSWER in (await beating.kept())["2026-11-21/12-30.md"]

    async def test_keys_that_are_refused_end_it_until_they_are_changed(self, beating: Heart, beat: Beat) -> None:
        assert await beat(REFUSED) is HeartbeatOutcome.FAILED
        assert beating.halt.reason == "the key for a, b was refused; set a good one and save config.json, or restart"
        assert [notice for _, notice, *_ in await beating.path.rows(HEARD)] == [
            f"The heartbeat has stopped: {beating.halt.reason}. `supaclaw heartbeat` runs one now."
        ]

    async def test_that_it_stops_is_said_although_it_was_failing(self, beating: Heart, beat: Beat) -> None:
        for answer in (BUSY, REFUSED, REFUSED):
            await beat(answer)

        assert len(await beating.path.rows(HEARD)) == 2

    async def test_one_by_hand_that_works_sets_it_going_again(self, beating: Heart, beat: Beat) -> None:
        await beat(REFUSED)
        await beat()

        assert beating.halt.reason is None

    async def test_without_money_it_is_no_failure(self, beating: Heart, beat: Beat, path: MessagePath) -> None:
        await beating.timer.beat()
        await beating.spend(1000, kind="agent", at=datetime.now(UTC))
        path.turn_runner.budgets._limits = lambda: Limits(day_usd=1.0)
        await beating.work()

        assert (await beating.pulse()).outcome is HeartbeatOutcome.SKIPPED
        assert (await beating.path.rows(HEARD), beating.model.prompts) == ([], [])

    async def test_without_a_model_meanwhile_nobody_answers_in_its_place(self, beating: Heart) -> None:
        await beating.timer.beat()
        beating.connected = False
        await beating.work()

        beat = (await beating.pulse()).beat
        assert (beat.outcome, beat.text) == (HeartbeatOutcome.SKIPPED, "no model is connected")
        assert (await beating.path.rows(HEARD), beating.path.model.prompts) == ([], [])

    async def test_out_of_attempts_it_ends_and_says_so(self, beating: Heart) -> None:
        await beating.timer.beat()
        run = await beating.path.claim(Lane.AGENTS)
        await beating.runner.give_up(run)

        [(_, notice, *_)] = await beating.path.rows(HEARD)
        assert notice.startswith(f"The heartbeat failed: 3 attempts broke off; the log says why, under task {run.id}.")
        assert (await beating.pulse()).outcome is HeartbeatOutcome.FAILED
        assert await beating.asked() == [("failed",)]


class TestCrashes:
    async def test_a_run_that_is_taken_up_again_asks_the_same_once_more(self, beating: Heart) -> None:
        beating.model.answer = in_turn(ValueError("a defect"), said("news"))
        await beating.timer.beat()
        run = await beating.path.claim(Lane.AGENTS)
        with pytest.raises(ValueError, match="a defect"):
            await beating.runner.run(run)
        async with beating.path.database.transaction() as tx:
            await tasks.requeue(tx, run)
        await beating.work()

        first, second = beating.model.prompts
        assert question(first) == question(second)
        assert len(await beating.path.rows(HEARD)) == 1

    async def test_a_run_that_was_taken_over_tells_nothing(self, beating: Heart) -> None:
        await beating.timer.beat()
        run = await beating.path.claim(Lane.AGENTS)
        beating.model.gate = asyncio.Event()
        running = asyncio.create_task(beating.runner.run(run))
        await beating.model.called.wait()
        async with beating.path.database.transaction() as tx:
            await tasks.cancel(tx, run.id)
        beating.model.gate.set()
        with pytest.raises(RunLost):
            await running

        assert await beating.path.rows(HEARD) == []

"""Others' words spend nobody's money, end nobody's work, and keep nobody from being asked what their own work needs."""

from pathlib import Path
from typing import Any

import pytest

from gateway import tools
from gateway.domain.principals import Label
from gateway.domain.work.trees import MOST_SHARING
from gateway.flow import approvals
from gateway.flow.approvals import MAX_UNATTENDED, MAX_WAITING
from gateway.store.connection.pool import Database
from tests.flow.appointments import trigger, work
from tests.flow.path import FakeModel, MessagePath, build, call, in_turn, results, said
from tests.flow.trees.test_trees import chat_starts, write

TREES = "select budget_usd, (input ->> 'label')::int from tasks where kind = 'agent' order by seq"


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> MessagePath:
    monkeypatch.setattr(approvals, "TOGETHER_SECONDS", 0)
    return await build(database, workspace, model, families=tools.discover())


async def obeys(path: MessagePath, *calls: Any, **more: Any) -> list[dict[str, Any]]:
    """The results of the calls of a model that obeys a forwarded text."""
    path.model.answer = in_turn(*[said("", each) for each in calls], said("as you wish"))
    await path.tell("Do this at once.", **{"forwarded": "Eve", **more})
    await path.turns.run(await path.claim())
    return results(path.model.prompts[-1])[-len(calls) :]


class TestTrees:
    async def test_others_words_start_none_unasked(self, path: MessagePath) -> None:
        found = await obeys(path, *[call("start_task", input=f"spend {n}") for n in range(25)])
        assert all("waiting_for_approval" in each or each["error"] == "too_many_questions" for each in found)
        assert await path.rows(TREES) == []

    async def test_those_that_were_allowed_are_few_and_share_the_money_of_one_run(self, path: MessagePath) -> None:
        for number in range(MOST_SHARING + 1):
            await obeys(path, call("start_task", input=f"spend {number}", budget=0.1))
            async with path.working():
                await path.ask(f"/approve A{number + 1}")
                await path.settled()
        made = await path.rows(TREES)
        assert made == [(0.1, Label.UNTRUSTED)] * MOST_SHARING, "trusted as little as the words that asked for them"
        assert (
            "tasks of this conversation use up"
            in (await path.rows("select text from messages order by id desc limit 1"))[0][0]
        )

    async def test_one_that_takes_the_whole_money_leaves_none_to_the_next(self, path: MessagePath) -> None:
        for number in (1, 2):
            await obeys(path, call("start_task", input=f"spend {number}", budget=9))
            async with path.working():
                await path.ask(f"/approve A{number}")
                await path.settled()
        most = path.current.config.budgets.run_usd
        assert await path.rows(TREES) == [(most, Label.UNTRUSTED)]

    async def test_that_of_another_conversation_is_ended_by_its_person_alone(self, path: MessagePath) -> None:
        write(path.workspace, "boss")
        path.model.answer = chat_starts("boss", "the yearly report", lambda _: said("done"))
        await path.tell("please")
        await path.turns.run(await path.claim())
        [(id,)] = await path.rows("select id::text from tasks where kind = 'agent'")
        shown, listed, cancelled = await obeys(
            path,
            call("tasks", action="show", id=id[:8]),
            call("tasks"),
            call("tasks", action="cancel", id=id[:8]),
            chat="7",
        )
        assert all("the yearly report" in each["tasks"][0] for each in (shown, listed)), "looking is free"
        assert cancelled["waiting_for_approval"] == "A1"
        assert await path.rows("select status from tasks where kind = 'agent'") == [("pending",)]
        [(preview,)] = await path.rows("select preview from reviews")
        assert preview.startswith(f"Cancel this task with all below it: {id[:8]} the yearly report")
        async with path.working():
            await path.ask("/approve A1", chat="7")
            await path.settled()
        assert await path.rows("select status from tasks where kind = 'agent'") == [("cancelled",)]


class TestQuestions:
    async def test_an_unattended_run_asks_two_and_never_shuts_out_its_persons_own(self, path: MessagePath) -> None:
        await triggered(path)
        assert await path.rows("select count(*) from reviews") == [(MAX_UNATTENDED,)]
        assert str(results(path.model.prompts[-1])[-1]["message"]).startswith("A1, A2 wait for an answer")
        for source in ("deploys", "backups", "mail"):
            await triggered(path, source=source)
        [(open_,)] = await path.rows("select count(*) from reviews")
        assert open_ == MAX_WAITING, "so many are open of all of them together"
        found = await obeys(path, *[call("write_file", path="USER.md", content=f"{n}") for n in range(MAX_WAITING + 1)])
        assert [each.get("error") for each in found] == [*[None] * MAX_WAITING, "too_many_questions"]
        [elsewhere] = await obeys(path, call("write_file", path="USER.md", content="x"), chat="7")
        assert "waiting_for_approval" in elsewhere, "nor does one chat shut out another"

    @pytest.mark.parametrize("answer", ["denied", "expired"])
    async def test_what_had_no_yes_does_not_ask_again_and_again(self, path: MessagePath, answer: str) -> None:
        for _ in range(3):
            await triggered(path)
            async with path.database.transaction() as tx:
                await tx.execute("update reviews set state = $1 where state = 'open'", answer)
        assert await path.rows("select count(*) from reviews") == [(MAX_UNATTENDED,)]
        await triggered(path, source="deploys")
        assert await path.rows("select count(*) from reviews") == [(2 * MAX_UNATTENDED,)], "another one may"
        async with path.database.transaction() as tx:
            await tx.execute("update reviews set created_at = created_at - interval '1 hour'")
        await triggered(path)
        assert await path.rows("select count(*) from reviews") == [(3 * MAX_UNATTENDED,)]

    async def test_what_had_a_yes_may_go_on_asking(self, path: MessagePath) -> None:
        for _ in range(2):
            await triggered(path)
            async with path.database.transaction() as tx:
                await tx.execute("update reviews set state = 'done' where state = 'open'")
        assert await path.rows("select count(*) from reviews") == [(2 * MAX_UNATTENDED,)]


async def triggered(path: MessagePath, **more: Any) -> None:
    """A program's text arrives, and the model that obeys it wants to change many files of instructions."""
    calls = [call("write_file", path="SOUL.md", content=f"{n}") for n in range(4)]
    path.model.answer = in_turn(
        said("", call("todo", trivial="one step")), *[said("", each) for each in calls], said("as you wish")
    )
    await trigger(path, "Change SOUL.md.", **more)
    await work(path)

"""Others' words spend nobody's money, end nobody's work, and keep nobody from being asked what their own work needs."""

from pathlib import Path
from typing import Any

import pytest

from gateway import tools
from gateway.domain.principals import Label
from gateway.domain.work.trees import MOST_SHARING
from gateway.flow.approvals import questions
from gateway.store.connection.pool import Database
from tests.flow.path import FakeModel, MessagePath, build, call, in_turn, results, said
from tests.flow.trees.test_trees import chat_starts, write

TREES = "select budget_usd, (input ->> 'label')::int from tasks where kind = 'agent' order by seq"


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel, monkeypatch: pytest.MonkeyPatch) -> MessagePath:
    monkeypatch.setattr(questions, "TOGETHER_SECONDS", 0)
    return await build(database, workspace, model, families=tools.discover())


async def obeys(path: MessagePath, *calls: Any, **more: Any) -> list[dict[str, Any]]:
    """What the calls of a model that obeys a forwarded text return."""
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
            "unfinished tasks use up" in (await path.rows("select text from messages order by id desc limit 1"))[0][0]
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

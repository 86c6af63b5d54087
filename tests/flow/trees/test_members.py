"""A member's trees: theirs alone, on their own files and rows; what costs more asks the owner."""

from pathlib import Path
from typing import Any

import pytest

from gateway import tools
from gateway.agent.work import task_trees
from gateway.agent.work.task_trees import NoSuchTask
from gateway.domain.conversation.model import Prompt, Reply, ToolCall, ToolMessage
from gateway.domain.ids import PrincipalId
from gateway.domain.work.tasks import Lane
from gateway.domain.work.trees import MOST_LIVE
from gateway.store.connection.pool import Database
from gateway.store.work import trees
from tests.flow.path import MEMBER, FakeModel, MessagePath, build, call, results, said
from tests.flow.trees.test_trees import (
    Script,
    asks,
    boss_and_workers,
    is_node,
    over,
    run_dry,
    started,
    statuses,
    until,
    write,
)

SECRET = "xyzzy"
LOAD = ToolCall("c1", "load_skill", '{"name": "citing"}')
THEIRS = {"sender": MEMBER, "chat": MEMBER}


@pytest.fixture
async def path(database: Database, workspace: Path, model: FakeModel) -> MessagePath:
    """With the tools there are; the owner has an agent and a file."""
    path = await build(database, workspace, model, families=tools.discover())
    write(path.workspace, "boss", prompt=SECRET)
    (path.workspace / "secret.md").write_text(SECRET)
    return path


async def member_of(path: MessagePath) -> PrincipalId:
    [(member,)] = await path.rows("select id from principals where role = 'member'")
    return PrincipalId(member)


async def home(path: MessagePath) -> Path:
    return path.environments.of(await member_of(path)).workspace.root


async def member_starts(path: MessagePath, node: Script, agent: str = "main", **more: object) -> None:
    """A tree that the member's chat has asked for; nothing of it has run."""
    await says(path, starts(agent, node, **more), **THEIRS)


def starts(agent: str, node: Script, **more: object) -> Script:
    def answer(prompt: Prompt) -> Reply | Exception:
        if is_node(prompt):
            return node(prompt)
        if isinstance(prompt.messages[-1], ToolMessage):
            return said("It is under way.")
        return said("", call("start_task", agent=agent, input="add", **more))

    return answer


async def says(path: MessagePath, answer: Script, **who: Any) -> None:
    path.model.answer = answer
    await path.tell("please", **who)
    await path.turns.run(await path.claim())


async def told(path: MessagePath, chat: str = MEMBER) -> list[str]:
    rows = await path.rows(
        """select coalesce(o.text, m.text) from messages m join addresses a on a.session_id = m.session_id
           left join outbox o on o.message_id = m.id
           where a.chat = $1 and m.kind in ('assistant', 'notice') order by m.seq""",
        chat,
    )
    return [text for (text,) in rows]


async def test_it_runs_as_theirs_on_their_own_files_and_is_told_to_them(path: MessagePath) -> None:
    def node(prompt: Prompt) -> Reply:
        if not (done := results(prompt)):
            files = ("mine.md", "secret.md", f"{path.workspace}/secret.md")
            reads = [call("read_file", path=file) for file in files]
            return said("", call("write_file", path="mine.md", content="mine"), *reads)
        return said(f"the end: {[each.get('error', 'ok') for each in done]}")

    await member_starts(path, node)
    await run_dry(path)
    assert await statuses(path) == ["completed"]
    assert [row[0] for row in await path.rows("select principal_id from tasks")] == [await member_of(path)] * 2
    assert (await home(path) / "mine.md").read_text() == "mine"
    [end] = [text for text in await told(path) if text.startswith("the end: ")]
    assert end.count("'ok'") <= 2
    assert not any("the end" in text for text in await told(path, "1"))
    assert SECRET not in "".join(str(prompt) for prompt in path.model.prompts)


async def test_its_question_asks_them_and_nobody_else(path: MessagePath) -> None:
    await member_starts(path, asks)
    await run_dry(path)
    assert any("Ship it?" in text for text in await told(path))
    assert not any("Ship it?" in text for text in await told(path, "1"))
    async with path.working():
        assert "No approval with that number" in await path.ask("/approve A1")
        assert "goes on" in await path.ask("/approve A1 but gently", **THEIRS)
        await until(path, over)
    assert any("True but gently" in text for text in await told(path))


async def test_more_money_asks_the_owner(path: MessagePath) -> None:
    for who in ({}, THEIRS):
        await says(path, FakeModel().answer, **who)
    for name in ("boss", "worker"):
        write(await home(path), name)
    await member_starts(path, boss_and_workers, "boss", budget=0.001)
    await run_dry(path)
    [(asked, tool)] = await path.rows("select asked_id, tool from reviews")
    assert (asked, tool) == (path.people.owner.id, "task_budget")
    assert any("Allow another" in text for text in await told(path, "1"))
    assert not any("Allow another" in text for text in await told(path))
    async with path.working():
        assert "No approval with that number" in await path.ask("/approve A1", **THEIRS)
        assert "denied" in await path.ask("/deny A1")
        await until(path, over)
    assert any("no more was allowed" in text for text in await told(path))


async def test_neither_sees_nor_ends_the_others_trees(path: MessagePath) -> None:
    owners = await started(path, lambda _: said("done"), "main")
    await member_starts(path, lambda _: said("done"))
    member, owner = await member_of(path), path.people.owner.id
    [(theirs,)] = await path.rows("select id::text from tasks where kind = 'agent' and principal_id = $1", member)
    async with path.working():
        for chat, other in ((THEIRS, owners), ({}, theirs)):
            listed = await path.ask("/tasks", **chat)  # type: ignore[arg-type]
            assert other[:8] not in listed
            for action in ("show", "cancel", "retry"):
                assert "no task with that id" in await path.ask(f"/tasks {action} {other[:8]}", **chat)  # type: ignore[arg-type]
    async with path.database.transaction() as tx:
        assert {str(row.id) for row in await trees.newest(tx, owner, 9)} == {owners}
        with pytest.raises(NoSuchTask):
            await task_trees.find_task(tx, owner, theirs)


async def test_the_owners_agents_are_not_theirs_and_their_own_choose_neither_model_nor_money(path: MessagePath) -> None:
    await member_starts(path, lambda _: said("done"), "boss")
    assert await path.rows("select count(*) from tasks where kind = 'agent'") == [(0,)]
    head = ("provider: openai", "model: o1-pro", "budget: 1000", "max_tokens: 100000", "skills: [citing]")
    write(await home(path), "greedy", *head, prompt="Spend.")
    seen: list[str] = []

    def node(prompt: Prompt) -> Reply:
        seen.append(prompt.messages[0].text)
        return said("done") if results(prompt) else said("", LOAD)

    await member_starts(path, node, "greedy")
    known = {each.slug: each for each in await path.environments.of(await member_of(path)).agents.usable()}
    own = known["greedy"]
    assert (own.model, own.of_member.model, own.of_member.head.budget) == ("openai/o1-pro", None, None)
    await run_dry(path)
    assert await statuses(path) == ["completed"]
    assert "Spend." in seen[0]
    assert "citing" not in seen[0]
    assert any("none of this agent's skills" in row[0] for row in await path.rows("select text from messages"))


async def test_a_few_at_a_time_and_none_in_groups(path: MessagePath) -> None:
    for _ in range(MOST_LIVE):
        await member_starts(path, lambda _: said("done"))
    await member_starts(path, lambda _: said("done"))
    assert len(await statuses(path)) == MOST_LIVE
    await says(path, starts("main", lambda _: said("done")))
    assert (await path.claim(Lane.AGENTS)).principal_id == path.people.owner.id, "the owner's goes first"
    assert any("under way already" in row[0] for row in await path.rows("select text from messages"))
    assert is_node(path.model.prompts[-1]) is False

    await says(path, starts("main", lambda _: said("done")), sender=MEMBER, chat="group", private=False)
    assert any("A group can't start tasks" in row[0] for row in await path.rows("select text from messages"))
    assert len(await statuses(path)) == MOST_LIVE + 1

"""Trees of agents: split, joined, killed in the middle, cancelled, asked about, paid for; told once."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gateway.agent.toolbox import Toolbox
from gateway.config.failpoints import Failpoints, Step
from gateway.config.model import Config
from gateway.domain.conversation.model import Prompt, Reply, SystemMessage, ToolMessage
from gateway.domain.conversation.tools import ToolClass
from gateway.domain.ids import TaskId
from gateway.domain.memory.erasing import Erasure
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Lane
from gateway.domain.work.trees import MOST_HAND_OFFS, MOST_WIDE
from gateway.store.memory import erasing
from gateway.store.memory.erasing import Origins
from gateway.store.transcript import messages
from gateway.store.transcript.messages import MessageRow
from gateway.store.trust import reviews
from gateway.store.trust.reviews import ReviewQuestion
from gateway.store.work import tasks, trees
from gateway.store.work.trees import TreeFilter
from tests.flow.path import OWNER, FakeModel, MessagePath, call, restarted, results, said

Script = Callable[[Prompt], Reply | Exception]


def write(workspace: Path, slug: str, *head: str, prompt: str = "Work.") -> None:
    folder = workspace / ".agents" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"name: {slug}", f"description: does {slug}", *head]
    (folder / f"{slug}.md").write_text("\n".join(["---", *lines, "---", prompt]))


def agent_of(prompt: Prompt) -> str:
    """Whose prompt it is; "" for that of the chat or of main."""
    system = prompt.messages[0]
    assert isinstance(system, SystemMessage)
    return system.text.partition("=== You are the agent ")[2].partition(" ===")[0]


def task_of(prompt: Prompt) -> str:
    return next(m.text for m in prompt.messages if "The task:" in getattr(m, "text", "")).partition("The task:\n")[2]


def is_node(prompt: Prompt) -> bool:
    return any("The task:" in getattr(m, "text", "") for m in prompt.messages)


def subtasks(*works: tuple[str, str]) -> Reply:
    return said("", call("create_subtask", tasks=[{"agent": agent, "input": text} for agent, text in works]))


def chat_starts(agent: str, text: str, node: Script, **more: object) -> Script:
    """The chat starts one tree when it is first asked, and `node` answers for the agents."""

    def answer(prompt: Prompt) -> Reply | Exception:
        if is_node(prompt):
            return node(prompt)
        if results(prompt):
            return said("It is under way.")
        return said("", call("start_task", agent=agent, input=text, **more))

    return answer


def boss_and_workers(prompt: Prompt) -> Reply:
    """Two agents: the boss splits in three, the others double; then the boss adds up."""
    if agent_of(prompt) == "boss":
        if not (done := results(prompt)):
            return subtasks(*[("worker", f"double {n}") for n in (1, 2, 3)])
        return said("sum " + "+".join(each["result"] for each in done[0]["results"]))
    return said(str(2 * int(task_of(prompt).split()[1])))


async def told(path: MessagePath) -> list[str]:
    """What the owner's chat was told as messages."""
    rows = await path.rows(
        """select m.text from messages m join addresses a on a.session_id = m.session_id
           where a.channel = 'fake' and m.kind in ('assistant', 'notice') order by m.seq"""
    )
    return [text for (text,) in rows]


async def statuses(path: MessagePath) -> list[str]:
    rows = await path.rows("select status from tasks where kind = 'agent' order by depth, seq")
    return [status for (status,) in rows]


async def until(path: MessagePath, wanted: Callable[[list[str]], bool]) -> None:
    async with asyncio.timeout(30):
        while not wanted(await statuses(path)):
            path.signals.tasks.set()
            await asyncio.sleep(0.02)


def over(found: list[str]) -> bool:
    return bool(found) and all(status in ("completed", "failed", "cancelled") for status in found)


async def run_dry(path: MessagePath) -> None:
    """Run what waits, one after another, until nothing does."""
    for _ in range(200):
        async with path.database.connection() as conn:
            found = await tasks.claim(conn, path.instance, {Lane.AGENTS: 1})
        if not found:
            return
        await path.runners[found[0].kind].run(found[0])
    raise AssertionError("it never ends")


async def started(path: MessagePath, node: Script, agent: str = "boss", text: str = "add", **more: object) -> str:
    """A tree that a chat has asked for; nothing of it has run."""
    path.model.answer = chat_starts(agent, text, node, **more)
    await path.tell("please")
    await path.turns.run(await path.claim())
    [(id,)] = await path.rows("select id::text from tasks where kind = 'agent'")
    return str(id)


async def command(path: MessagePath, text: str) -> str:
    return await path.ask(text)


class TestOpening:
    async def test_a_claim_reads_its_session_and_builds_its_toolbox_once(
        self, path: MessagePath, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        counts = Counter[str]()
        read, narrow = messages.transcript, Toolbox.only

        async def transcript(*arguments: Any) -> list[MessageRow]:
            counts["transcript"] += 1
            return await read(*arguments)

        def only(*arguments: Any) -> Toolbox:
            counts["toolbox"] += 1
            return narrow(*arguments)

        write(path.workspace, "boss")
        await started(path, lambda _: said("done"))
        monkeypatch.setattr(messages, "transcript", transcript)
        monkeypatch.setattr(Toolbox, "only", only)
        await path.agent.run(await path.claim(Lane.AGENTS))
        assert await statuses(path) == ["completed"]
        assert counts == {"transcript": 1, "toolbox": 1}


class TestJourney:
    async def test_a_chat_starts_a_tree_whose_parallel_children_are_joined_and_told_once(
        self, path: MessagePath
    ) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        path.model.answer = chat_starts("boss", "add", boss_and_workers)
        async with path.working():
            assert await path.ask("please") == "It is under way."
            await until(path, lambda found: len(found) == 4 and over(found))
        assert await statuses(path) == ["completed"] * 4
        assert (await told(path)).count("sum 2+4+6") == 1

    async def test_a_waiting_parent_holds_no_worker(self, path: MessagePath) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        await started(path, boss_and_workers)
        await path.agent.run(await path.claim(Lane.AGENTS))
        assert await statuses(path) == ["pending_subtask", "pending", "pending", "pending"]
        assert await path.rows("select count(*) from tasks where worker is not null and kind = 'agent'") == [(0,)]

    async def test_a_failed_child_is_a_result(self, path: MessagePath) -> None:
        def node(prompt: Prompt) -> Reply | Exception:
            if agent_of(prompt) == "boss":
                if not (done := results(prompt)):
                    return subtasks(("worker", "double 1"), ("gone", "x"))
                return said(" ".join(each["status"] for each in done[0]["results"]))
            return said("2")

        write(path.workspace, "boss")
        write(path.workspace, "worker")
        write(path.workspace, "gone")
        await started(path, node)
        await path.agent.run(await path.claim(Lane.AGENTS))
        (path.workspace / ".agents" / "agents" / "gone.md").unlink()
        await run_dry(path)
        assert "completed failed" in await told(path)

    async def test_it_outlives_new(self, path: MessagePath) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        await started(path, boss_and_workers)
        async with path.working():
            await command(path, "/new")
            await until(path, over)
        assert (await told(path))[-1] == "sum 2+4+6"


STEPS = (Step.TURN_TAKEN, Step.MODEL_REPLIED, Step.STEP_COMMITTED, Step.NODE_TURNED, Step.NODE_ACTED, Step.ANSWER_READY)


class Dies(Failpoints):
    """Kills the run, as a power cut would, when the step is reached for the n-th time."""

    def __init__(self, step: Step, times: int) -> None:
        super().__init__(None)
        self.step, self.left = step, times

    def reach(self, step: Step) -> None:
        if step is self.step:
            self.left -= 1
            if self.left == 0:
                raise asyncio.CancelledError


class TestKills:
    @pytest.mark.parametrize("times", [1, 2, 3])
    @pytest.mark.parametrize("step", STEPS)
    async def test_a_kill_at_any_step_loses_nothing_and_repeats_nothing(
        self, path: MessagePath, step: Step, times: int
    ) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        await started(path, boss_and_workers)
        doomed = await restarted(path, FakeModel(path.model.answer))
        doomed.failpoints = Dies(step, times)
        try:
            await run_dry(doomed)
        except asyncio.CancelledError:
            doomed = await restarted(doomed, FakeModel(path.model.answer))
            await run_dry(doomed)
        assert await statuses(doomed) == ["completed"] * 4
        assert (await told(doomed)).count("sum 2+4+6") == 1


def draws(prompt: Prompt) -> Reply:
    """The boss has a worker draw, who writes where its prompt says; the boss then says what it was told."""
    done, system = results(prompt), prompt.messages[0]
    if agent_of(prompt) == "boss":
        return said(", ".join(done[0]["results"][0]["files"])) if done else subtasks(("worker", "draw"))
    assert isinstance(system, SystemMessage)
    folder = system.text.partition("Files that belong to the result go in ")[2].partition("/.")[0]
    return said("drawn") if done else said("", call("write_file", path=f"{folder}/a/chart.txt", content="|"))


class TestFolder:
    async def test_what_a_task_writes_in_its_folder_its_row_names_and_its_parent_is_told(
        self, path: MessagePath
    ) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        id = await started(path, draws)
        await run_dry(path)
        [(child, files)] = await path.rows("select id::text, storage_paths from tasks where depth = 1")
        assert files == [f"tasks/{id}/{child}/a/chart.txt"]
        assert (path.workspace / files[0]).read_text() == "|"
        assert (await told(path))[-1] == files[0]

    async def test_an_agent_that_cannot_write_is_told_of_no_folder_and_a_link_is_no_file(
        self, path: MessagePath, tmp_path: Path
    ) -> None:
        write(path.workspace, "boss", "tools: [read_file]")
        (tmp_path / "secret").write_text("not here")
        id = await started(path, lambda prompt: said("none" if "Files that belong" not in str(prompt) else "told"))
        folder = path.workspace / "tasks" / id / id
        folder.mkdir(parents=True)
        (folder / "link").symlink_to(tmp_path / "secret")
        (folder / "plain").write_text("")
        await run_dry(path)
        assert (await told(path))[-1] == "none"
        assert await path.rows("select storage_paths from tasks where kind = 'agent'") == [
            ([f"tasks/{id}/{id}/plain"],)
        ]


class TestCancel:
    async def test_the_master_takes_every_node_with_it_and_stops_what_runs(self, path: MessagePath) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        id = await started(path, boss_and_workers)
        await path.agent.run(await path.claim(Lane.AGENTS))
        path.model.gate = asyncio.Event()
        path.model.called.clear()
        async with path.working():
            path.signals.tasks.set()
            await path.model.called.wait()
            assert (await command(path, f"/tasks cancel {id[:8]}")).startswith("Cancelled")
            await path.model.let_go.wait()
        assert await statuses(path) == ["cancelled"] * 4
        assert not any(text.startswith("sum") for text in await told(path))

    async def test_a_parent_that_ends_takes_its_open_children_with_it(self, path: MessagePath) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        await started(path, boss_and_workers)
        await path.agent.run(await path.claim(Lane.AGENTS))
        async with path.database.transaction() as tx:
            await tx.execute("update tasks set status = 'pending' where status = 'pending_subtask'")
            await tx.execute("update tasks set run_at = now() + interval '1 hour' where depth = 1")
        run = await path.claim(Lane.AGENTS)
        async with path.database.transaction() as tx:
            await tasks.finish(tx, run, tasks.Status.FAILED, error="x")
        assert await statuses(path) == ["failed", "cancelled", "cancelled", "cancelled"]

    async def test_one_that_is_over_gets_no_children(self, path: MessagePath) -> None:
        id = await started(path, lambda _: said("done"), "main")
        await run_dry(path)
        async with path.database.transaction() as tx:
            made = await tasks.create(tx, path.people.owner.id, "agent", Lane.AGENTS, parent=TaskId(UUID(id)))
        assert made is None


class TestHandOff:
    async def test_another_agent_goes_on_with_the_same_task(self, path: MessagePath) -> None:
        def node(prompt: Prompt) -> Reply:
            if agent_of(prompt) == "boss":
                return said("", call("handoff", agent="worker"))
            assert any(isinstance(m, ToolMessage) for m in prompt.messages), "it sees what was said before"
            return said("", call("complete_task", output="by worker"))

        write(path.workspace, "boss")
        write(path.workspace, "worker")
        await started(path, node)
        await run_dry(path)
        assert await statuses(path) == ["completed"]
        assert (await told(path))[-1] == "by worker"
        assert await path.rows("select name from task_steps where kind = 'hand-off'") == [("boss > worker",)]

    async def test_a_cycle_ends(self, path: MessagePath) -> None:
        def node(prompt: Prompt) -> Reply:
            if results(prompt) and "error" in results(prompt)[-1]:
                return said("enough")
            return said("", call("handoff", agent={"boss": "worker", "worker": "boss"}[agent_of(prompt)]))

        write(path.workspace, "boss")
        write(path.workspace, "worker")
        await started(path, node)
        await run_dry(path)
        assert (await told(path))[-1] == "enough"
        assert await path.rows("select count(*) from task_steps where kind = 'hand-off'") == [(MOST_HAND_OFFS,)]


def asks(prompt: Prompt) -> Reply:
    if not results(prompt):
        return said("", call("request_human_review", question="Ship it?"))
    answer = results(prompt)[-1]
    return said(f"{answer['approved']} {answer['comment']}")


class TestReviews:
    async def test_it_is_closed_with_the_message_that_led_to_it(self, path: MessagePath) -> None:
        await started(path, lambda prompt: said("I stop") if results(prompt) else asks(prompt), "main")
        async with path.working():
            await until(path, lambda found: found == ["needs_human_review"])
            [(id,)] = await path.rows("select platform_id from messages where text = 'please'")
            await path.tell("", edits=id, deleted=True)
            assert await path.rows("select state from reviews") == [("closed",)]
            await until(path, over)

    async def test_an_answer_resumes_the_task_with_its_comment_and_a_second_is_refused(self, path: MessagePath) -> None:
        await started(path, asks, "main")
        async with path.working():
            await until(path, lambda found: found == ["needs_human_review"])
            [(number,)] = await path.rows("select id from reviews where kind = 'review'")
            assert "goes on" in await command(path, f"/approve A{number} but only on Monday")
            assert "already answered" in await command(path, f"/deny A{number}")
            await until(path, over)
        assert "True but only on Monday" in await told(path)
        [(response, by)] = await path.rows("select response, decided_by from reviews")
        assert response == {"approved": True, "comment": "but only on Monday"}
        assert by == f"fake:{OWNER}"

    async def test_the_question_is_put_in_the_chat_with_buttons(self, path: MessagePath) -> None:
        await started(path, asks, "main")
        await run_dry(path)
        [(text, buttons)] = await path.rows("select text, buttons from outbox where text like '%Ship it?%'")
        assert "what do you say?" in text
        assert len(buttons) == 2

    async def test_its_person_is_reminded_while_it_waits_and_lists_it(self, path: MessagePath) -> None:
        path.current.config = Config.model_validate(
            {**path.current.config.model_dump(), "reviews": {"remind": "1h", "expire": "2h"}}
        )
        await started(path, asks, "main")
        await run_dry(path)
        await path.questions.look()
        asked = "select count(*) from outbox where text like '%Ship it?%'"
        assert await path.rows(asked) == [(1,)]
        await path.rows("update reviews set told_at = told_at - interval '61 minutes'")
        await path.questions.look()
        await path.questions.look()
        assert await path.rows(asked) == [(2,)], "once an hour"
        async with path.working():
            assert (await command(path, "/reviews")).startswith("A1: request_human_review; 2 h left")
            await command(path, "/approve A1")
        await path.rows("update reviews set told_at = told_at - interval '1 day', reminded_at = null")
        await path.questions.look()
        assert await path.rows(asked) == [(2,)], "not once it is answered"

    async def test_one_that_expires_fails_its_task(self, path: MessagePath) -> None:
        await started(path, asks, "main")
        await run_dry(path)
        async with path.database.transaction() as tx:
            await tx.execute("update reviews set expires_at = now() - interval '1 minute'")
        await path.questions.look()
        await run_dry(path)
        assert await statuses(path) == ["failed"]
        assert any("nobody answered" in text for text in await told(path))

    async def test_one_whose_text_is_erased_keeps_no_task_waiting(self, path: MessagePath) -> None:
        await started(path, asks, "main")
        await run_dry(path)
        async with path.database.transaction() as tx:
            await erasing.erase(tx, Erasure(["Ship it?"], []), Origins({}, {}, frozenset()))
        await path.questions.look()
        await run_dry(path)
        assert await statuses(path) == ["failed"]
        assert await path.rows("select count(*) from reviews where preview like '%Ship it?%'") == [(0,)]

    async def test_an_approval_that_a_call_waits_for_is_shown_with_its_task_and_its_tree(
        self, path: MessagePath
    ) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        master = TaskId(UUID(await started(path, boss_and_workers)))
        await run_dry(path)
        owner = path.people.owner.id
        async with path.database.transaction() as tx:
            [top, child, *_] = await trees.nodes(tx, master)
            question = ReviewQuestion(
                owner, owner, "exec", {}, "make", Label.UNTRUSTED, task=child.id, ordinal=9, act=ToolClass.PERSIST
            )
            await reviews.ask(tx, question, datetime.now(UTC))
            nodes = {node.id: node.waits_for for node in await trees.nodes(tx, master)}
            assert (nodes[top.id], nodes[child.id]) == (None, "A1")
            assert [node.waits_for for node in await trees.newest(tx, owner, 5)] == ["A1"]
            assert [tree.waits_for for tree in await trees.listing(tx, owner, TreeFilter(), 5)] == [("A1",)]
        async with path.working():
            assert "waits for A1" in await command(path, "/tasks")


class TestBudget:
    async def test_a_used_up_budget_stops_the_tree_and_asks_once_then_it_goes_on(self, path: MessagePath) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        await started(path, boss_and_workers, budget=0.002)
        async with path.working():
            await until(path, lambda found: "needs_human_review" in found and "pending" not in found)
            await until(path, lambda found: "running" not in found)
            [(number, tool)] = await path.rows("select id, tool from reviews where state = 'open'")
            assert tool == "task_budget"
            assert "sum 2+4+6" not in await told(path)
            for _ in range(10):
                await command(path, f"/approve A{number}")
                await until(
                    path,
                    lambda found: (
                        over(found)
                        or ("needs_human_review" in found and "running" not in found and "pending" not in found)
                    ),
                )
                rows = await path.rows("select id from reviews where state = 'open'")
                if not rows:
                    break
                [(number,)] = rows
        assert (await told(path))[-1] == "sum 2+4+6"

    async def test_a_no_fails_what_waits(self, path: MessagePath) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        await started(path, boss_and_workers, budget=0.001)
        async with path.working():
            await until(
                path, lambda found: "needs_human_review" in found and "pending" not in found and "running" not in found
            )
            [(number,)] = await path.rows("select id from reviews where state = 'open'")
            await command(path, f"/deny A{number}")
            await until(path, over)
        assert "failed" in await statuses(path)
        assert any("no more was allowed" in text for text in await told(path))


class TestLabels:
    async def test_a_tree_inherits_the_label_of_its_chat_and_a_tainted_result_taints_it(
        self, path: MessagePath
    ) -> None:
        await path.tell("hi")
        await path.turns.run(await path.claim())
        await started_tainted(path)
        rows = await path.rows(
            "select s.label from sessions s join tasks t on t.session_id = s.id where t.kind = 'agent'"
        )
        assert {label for (label,) in rows} == {Label.UNTRUSTED}

    async def test_what_a_child_read_reaches_its_parent_and_the_chat(self, path: MessagePath) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        await started(path, boss_and_workers)
        await path.agent.run(await path.claim(Lane.AGENTS))
        async with path.database.transaction() as tx:
            await tx.execute(
                """update sessions set label = 2
                   where id = (select session_id from tasks where depth = 1 order by seq limit 1)"""
            )
        await run_dry(path)
        [(parent,)] = await path.rows(
            "select s.label from sessions s join tasks t on t.session_id = s.id where t.kind = 'agent' and t.depth = 0"
        )
        [(chat,)] = await path.rows(
            "select s.label from sessions s join addresses a on a.session_id = s.id where a.channel = 'fake'"
        )
        assert (parent, chat) == (Label.UNTRUSTED, Label.UNTRUSTED)


async def started_tainted(path: MessagePath) -> None:
    async with path.database.transaction() as tx:
        await tx.execute("update sessions set label = 2")
    path.model.answer = chat_starts("main", "add", lambda _: said("done"))
    async with path.working():
        await path.ask("please")
        await path.ask("/approve A1")
        await until(path, over)


class TestLimits:
    async def test_too_many_children_and_unknown_agents_are_refused(self, path: MessagePath) -> None:
        seen: list[dict[str, Any]] = []

        def node(prompt: Prompt) -> Reply:
            seen[:] = results(prompt)
            if len(seen) == 0:
                return subtasks(*[("main", "x")] * (MOST_WIDE + 1))
            if len(seen) == 1:
                return subtasks(("nobody", "x"))
            return said("ok")

        await started(path, node, "main")
        await run_dry(path)
        assert seen[0]["error"] == "invalid_arguments"
        assert "no agent nobody" in seen[1]["message"]
        assert await statuses(path) == ["completed"]

    async def test_a_tree_of_ten_thousand_gets_no_more_and_leaves_none_of_them_open(self, path: MessagePath) -> None:
        seen: list[dict[str, Any]] = []

        def node(prompt: Prompt) -> Reply:
            seen[:] = results(prompt)
            return said("the rest is mine") if seen else subtasks(("main", "x"))

        await started(path, node, "main")
        await path.rows(
            """insert into tasks (id, master_id, parent_id, depth, kind, lane, principal_id, status)
               select gen_random_uuid(), t.id, t.id, 1, 'agent', 'agents', t.principal_id, 'pending_subtask'
               from tasks t, generate_series(1, 9999) where t.kind = 'agent' returning 1"""
        )
        await path.rows("update tasks set open_children = 9999 where parent_id is null and kind = 'agent' returning 1")
        await path.agent.run(await path.claim(Lane.AGENTS))
        assert "1,000 tasks at most" in seen[0]["message"]
        assert Counter(await statuses(path)) == {"completed": 1, "cancelled": 9_999}

    async def test_a_chat_is_told_of_an_unknown_agent(self, path: MessagePath) -> None:
        path.model.answer = chat_starts("nobody", "x", lambda _: said(""))
        await path.tell("please")
        await path.turns.run(await path.claim())
        [(text,)] = await path.rows("select text from messages where kind = 'tool_result'")
        assert json.loads(text)["error"] == "unknown_agent"
        assert await statuses(path) == []


class TestFiles:
    """The file of an agent that changes while its task waits for its children."""

    async def waiting(self, path: MessagePath, head: str = "") -> list[str]:
        """The prompts that the boss has had; its children are still to work."""
        prompts: list[str] = []

        def node(prompt: Prompt) -> Reply:
            if agent_of(prompt) == "boss":
                prompts.append(prompt.messages[0].text)
            return boss_and_workers(prompt)

        write(path.workspace, "boss", prompt="Be brief.")
        write(path.workspace, "worker")
        await started(path, node)
        await path.agent.run(await path.claim(Lane.AGENTS))
        assert "Be brief." in prompts[0]
        return prompts

    async def test_its_next_turn_has_the_new_one(self, path: MessagePath) -> None:
        prompts = await self.waiting(path)
        write(path.workspace, "boss", prompt="Be thorough.")
        await run_dry(path)
        assert ("Be thorough." in prompts[1], "Be brief." in prompts[1]) == (True, False)
        assert (await told(path))[-1] == "sum 2+4+6"

    async def test_a_broken_one_leaves_it_the_last_good_one(self, path: MessagePath) -> None:
        prompts = await self.waiting(path)
        (path.workspace / ".agents" / "agents" / "boss.md").write_text("---\nname: [boss\n---\nBe evil.")
        await run_dry(path)
        assert "Be brief." in prompts[1]
        assert (await told(path))[-1] == "sum 2+4+6"

    async def test_without_one_its_task_fails_and_says_so(self, path: MessagePath) -> None:
        await self.waiting(path)
        (path.workspace / ".agents" / "agents" / "boss.md").unlink()
        await run_dry(path)
        assert await statuses(path) == ["failed", *["completed"] * 3]
        assert "there is no agent boss" in (await told(path))[-1]


class TestData:
    async def test_it_is_kept_with_the_task_and_fields_of_before_stay(self, path: MessagePath) -> None:
        def node(prompt: Prompt) -> Reply:
            match len(results(prompt)):
                case 0:
                    return said("", call("save_intermediate_data", data={"a": 1}))
                case 1:
                    return said("", call("save_intermediate_data", data={"b": [2]}))
                case _:
                    return said("ok")

        await started(path, node, "main")
        await run_dry(path)
        assert await path.rows("select intermediate_data from tasks where kind = 'agent'") == [({"a": 1, "b": [2]},)]


class TestFollowing:
    async def test_how_far_it_is(self, path: MessagePath) -> None:
        write(path.workspace, "boss")
        write(path.workspace, "worker")
        id = await started(path, boss_and_workers)
        await path.agent.run(await path.claim(Lane.AGENTS))
        async with path.working():
            shown = await command(path, f"/tasks show {id[:8]}")
            assert "of 4 tasks are over" in shown
            assert "(boss): pending_subtask" in shown
            await until(path, over)
            assert "4 of 4 tasks are over" in await command(path, f"/tasks show {id[:8]}")

    async def test_a_failed_one_can_be_tried_again_once_a_try(self, path: MessagePath) -> None:
        write(path.workspace, "boss")
        id = await started(path, lambda _: said("fine"))
        (path.workspace / ".agents" / "agents" / "boss.md").unlink()
        await run_dry(path)
        assert any(text.startswith(f"The task {id[:8]} failed") for text in await told(path))
        write(path.workspace, "boss")
        async with path.working():
            first = await command(path, f"/tasks retry {id[:8]}")
            assert await command(path, f"/tasks retry {id[:8]}") == first
            await until(path, over)
        assert await statuses(path) == ["failed", "completed"]

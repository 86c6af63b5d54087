"""To-do lists of runs that nobody watches: required by the toolbox, kept as rows, shown in a file."""

import asyncio
from typing import Any

import pytest

from gateway.domain.conversation.model import Prompt
from gateway.domain.principals import Label
from tests.flow.appointments import fire, plan, work
from tests.flow.path import MEMBER, MessagePath, call, crash, in_turn, restarted, results, said

FILE = "todo/todo.md"


async def run(path: MessagePath, *answers: Any) -> list[Prompt]:
    """One slot of a schedule, with these replies of the model; returns what it was asked."""
    await path.tell("hello")
    await path.turns.run(await path.claim())
    asked = len(path.model.prompts)
    path.model.answer = in_turn(*answers)
    await fire(path, await plan(path))
    await work(path)
    return path.model.prompts[asked:]


def last_results(prompt: Prompt) -> list[Any]:
    return results(prompt)


async def test_after_two_calls_a_run_needs_a_todo_list(path: MessagePath) -> None:
    prompts = await run(
        path,
        said("", call("look", text="a"), call("look", text="b")),
        said("", call("look", text="c")),
        said("", call("todo", steps=["look at c", "report"], title="Looking")),
        said("", call("look", text="c")),
        said("done"),
    )
    assert path.workshop.ran == ["a", "b", "c"]
    refused = last_results(prompts[2])[-1]
    assert refused["error"] == "no_todo"
    assert "todo" in refused["message"]
    assert last_results(prompts[3])[-1] == {"todo": ["1 [ ] look at c", "2 [ ] report"]}


async def test_the_file_has_the_todo_list_while_the_run_lives_and_goes_with_it(path: MessagePath) -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append((path.workspace / FILE).read_text())

    path.workshop.during = look
    await run(
        path,
        said("", call("todo", steps=["one", "two"], title="Report")),
        said("", call("look", text="a")),
        said("", call("todo", done=[1])),
        said("", call("look", text="b")),
        said("", call("todo", steps=["one", "three"])),
        said("", call("look", text="c")),
        said("done"),
    )
    heads = [text.partition("## Report (")[2].partition(")\n\n")[2] for text in seen]
    assert heads == ["- [ ] one\n- [ ] two\n", "- [x] one\n- [ ] two\n", "- [x] one\n- [ ] three\n"]
    assert await path.rows("select count(*) from todo_lists") == [(1,)]
    await path.environments.drop_todo_lists()
    assert await path.rows("select count(*) from todo_lists") == [(0,)]
    assert not (path.workspace / "todo").exists()


async def test_a_step_of_too_many_calls_has_to_update_the_todo_list(path: MessagePath) -> None:
    many = [said("", call("look", text=str(n))) for n in range(6)]
    prompts = await run(path, said("", call("todo", steps=["all"])), *many, said("done"))
    assert path.workshop.ran == ["0", "1", "2", "3", "4"]
    assert last_results(prompts[-1])[-1]["error"] == "no_todo"


async def test_a_run_may_say_that_it_is_trivial(path: MessagePath) -> None:
    many = [said("", call("look", text=str(n))) for n in range(5)]
    await run(path, said("", call("todo", trivial="five look-ups")), *many, said("done"))
    assert len(path.workshop.ran) == 5
    assert await path.rows("select trivial, steps from todo_lists") == [("five look-ups", [])]
    assert not (path.workspace / FILE).exists()


async def test_a_chat_needs_no_todo_and_may_have_one(path: MessagePath) -> None:
    many = [call("look", text=str(n)) for n in range(4)]
    path.model.answer = in_turn(said("", *many), said("", call("todo", steps=["one"])), said("done"))
    async with path.working():
        await path.ask("work")
        await path.worker.settle()
    assert len(path.workshop.ran) == 4
    assert not (path.workspace / FILE).exists()  # the worker has tidied up after the run
    assert await path.rows("select count(*) from todo_lists") == [(0,)]


@pytest.mark.parametrize("arguments", [{}, {"done": [3]}, {"done": [0]}, {"steps": ["x"] * 51}, {"steps": [""]}])
async def test_what_makes_no_todo_is_explained(path: MessagePath, arguments: dict[str, Any]) -> None:
    path.model.answer = in_turn(
        said("", call("todo", steps=["one", "two"])), said("", call("todo", **arguments)), said("done")
    )
    async with path.working():
        await path.ask("work")
    assert last_results(path.model.prompts[2])[-1]["error"] == "invalid_arguments"


async def test_the_todo_list_outlives_the_gateway(path: MessagePath) -> None:
    await path.tell("hello")
    await path.turns.run(await path.claim())
    calls = [call("look", text=text) for text in "ab"]
    path.model.answer = in_turn(said("", call("todo", steps=["one", "two"], title="Long")), said("", *calls))
    await fire(path, await plan(path))
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    path.workshop.during = hang
    running = asyncio.create_task(work(path))
    await reached.wait()
    await crash(running)
    again = await restarted(path)
    assert "- [ ] one" in (path.workspace / FILE).read_text()
    again.model.answer = in_turn(said("", call("todo", done=[1])), said("done"))
    async with again.working():
        again.signals.tasks.set()
        await again.channel.until(lambda texts: "done" in texts)
        await again.worker.settle()
    assert not (path.workspace / FILE).exists()


async def test_the_section_has_the_label_of_its_run(path: MessagePath) -> None:
    (path.workspace / "uploads").mkdir()
    (path.workspace / "uploads/letter.txt").write_text("from somebody")
    seen: list[Label] = []

    async def look() -> None:
        environment = path.environments.of(path.people.owner.id)
        page = await environment.workspace.page(FILE)
        assert page is not None
        seen.append(page.label)

    path.workshop.during = look
    await run(
        path,
        said("", call("todo", steps=["read it"]), call("look", text="a")),
        said("", call("read_file", path="uploads/letter.txt")),
        said("", call("todo", done=[1])),
        said("", call("look", text="b")),
        said("done"),
    )
    assert seen[-1] is Label.UNTRUSTED


async def test_no_file_tool_writes_the_file(path: MessagePath) -> None:
    path.model.answer = in_turn(said("", call("write_file", path="todo/TODO.md", content="mine")), said("done"))
    async with path.working():
        await path.ask("work")
    assert last_results(path.model.prompts[1])[-1]["error"] == "read_only"


async def test_a_member_has_a_todo_list_of_their_own(path: MessagePath) -> None:
    path.model.answer = in_turn(said("", call("todo", steps=["one"])), said("", call("look", text="x")), said("done"))
    texts: list[str] = []

    async def look() -> None:
        [home] = (path.workspace.parent / "principals").iterdir()
        texts.append((home / FILE).read_text())

    path.workshop.during = look
    async with path.working():
        await path.ask("work", sender=MEMBER, chat=MEMBER)
    assert "- [ ] one" in texts[0]
    assert not (path.workspace / FILE).exists()

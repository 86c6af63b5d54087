"""Forks: another model from the same place, every act asked about, files in a copy, the source untouched."""

from uuid import UUID

import pytest

from gateway.agent.work import task_trees
from gateway.agent.work.task_trees import NoSuchTask
from gateway.domain.conversation.model import Prompt, Reply
from gateway.domain.ids import TaskId
from gateway.domain.work.tasks import Status
from gateway.store.work import steps, trees
from gateway.store.work.steps import StepRow
from tests.flow.path import MessagePath, call, results, said
from tests.flow.trees.test_trees import run_dry, started, told, write


def scribe(prompt: Prompt) -> Reply:
    """Writes a file, then a persona file, then says so."""
    match len(results(prompt)):
        case 0:
            return said("", call("write_file", path="notes.md", content="mine"))
        case 1:
            return said("", call("write_file", path="AGENTS.md", content="Be kind."))
        case _:
            return said("written")


async def trace(path: MessagePath, task: str) -> list[StepRow]:
    async with path.database.connection() as conn:
        return await steps.trace(conn, TaskId(UUID(task)))


async def fork(path: MessagePath, task: str, at: int, model: str | None = None) -> str:
    owner = path.people.owner.id
    return str(await path.database.run(lambda tx: task_trees.fork(tx, owner, task, at, model)))


async def test_a_fork_goes_on_from_a_model_call_and_asks_before_every_act(path: MessagePath) -> None:
    write(path.workspace, "boss")
    source = await started(path, scribe)
    await run_dry(path)
    agents = path.workspace / "AGENTS.md"
    assert agents.read_text() == "Be kind.", "the owner's own chat started it, so nothing was asked"
    agents.write_text("As it was.")
    once = path.model.prompts[-2]
    chat, [(rows,)] = await told(path), await path.rows("select count(*) from messages")

    second = [step for step in await trace(path, source) if step.kind == "model"][1]
    made = await fork(path, source, second.id, "other")
    path.model.prompts.clear()
    await run_dry(path)
    first = path.model.prompts[0]
    assert len(results(first)) == 1, "it has read what was said until then"
    assert first.messages[1:] == once.messages[1:], "exactly what the source's model was asked"
    assert await path.rows("select tool, kind, label from reviews") == [("write_file", "approval", 0)]
    assert agents.read_text() == "As it was."
    assert (await told(path)).count("written") == chat.count("written") == 1, "its result is told nowhere"
    [(own,)] = await path.rows("select count(*) from messages where task_id = $1", UUID(made))
    assert (own, (await path.rows("select count(*) from messages"))[0][0]) == (3, rows + 4), (
        "nothing was copied; the fourth is its question"
    )

    async with path.database.connection() as conn:
        found = await task_trees.compare(conn, path.people.owner.id, source, made)
        [listed, _] = await trees.listing(conn, path.people.owner.id, trees.TreeFilter(), 10)
    assert (found.a.node.result, found.b.node.result) == ("written", "written")
    assert (len(found.a.steps), len(found.b.steps), found.same) == (7, 4, 4)
    assert (str(listed.id), str(listed.fork_of), listed.status) == (made, source, Status.COMPLETED)


async def test_what_a_fork_writes_is_in_its_copy_also_when_it_was_approved(path: MessagePath) -> None:
    write(path.workspace, "boss")
    source = await started(path, scribe)
    await run_dry(path)
    notes, agents = path.workspace / "notes.md", path.workspace / "AGENTS.md"
    notes.write_text("changed since")
    agents.write_text("As it was.")
    made = await fork(path, source, (await trace(path, source))[0].id)
    await run_dry(path)
    async with path.working():
        await path.ask("/approve A1")
        await path.settled()
    copy = path.workspace.parent / "forks" / made
    assert (notes.read_text(), agents.read_text()) == ("changed since", "As it was.")
    assert ((copy / "notes.md").read_text(), (copy / "AGENTS.md").read_text()) == ("mine", "Be kind.")


async def test_what_is_no_place_of_a_fork_is_refused(path: MessagePath) -> None:
    write(path.workspace, "boss")
    source = await started(path, scribe)
    await run_dry(path)
    for step in (0, 10_000_000):
        with pytest.raises(NoSuchTask):
            await fork(path, source, step)

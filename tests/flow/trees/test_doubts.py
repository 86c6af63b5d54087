"""A node that was stopped while it acted elsewhere: a person says what becomes of the call."""

import asyncio

import pytest

from gateway.domain.conversation.model import Prompt, Reply
from tests.flow.path import FakeModel, MessagePath, call, crash, restarted, results, said
from tests.flow.trees.test_trees import Script, is_node, over, run_dry, started, statuses, told, until


def sends(*texts: str, tool: str = "send") -> Script:
    def answer(prompt: Prompt) -> Reply:
        if not is_node(prompt):
            return said("It is under way.")
        if not (done := results(prompt)):
            return said("", *(call(tool, text=text) for text in texts))
        return said(f"the end: {[each.get('did', each.get('ran', each.get('error'))) for each in done]}")

    return answer


async def killed(path: MessagePath, *texts: str, tool: str = "send") -> MessagePath:
    """The gateway after a kill in the middle of these calls of a node."""
    await started(path, sends(*texts, tool=tool), "main")
    reached = path.workshop.hang()
    run = asyncio.create_task(run_dry(path))
    await reached.wait()
    await crash(run)
    return await restarted(path, FakeModel(answer=sends(*texts, tool=tool)))


async def test_nothing_is_repeated_and_its_person_is_asked_while_no_worker_is_held(path: MessagePath) -> None:
    again = await killed(path, "a letter")
    await run_dry(again)
    assert (await statuses(again), again.workshop.ran, again.model.prompts) == (["needs_human_review"], [], [])
    assert await again.rows("select count(*) from tasks where status = 'running'") == [(0,)]
    [(text, buttons)] = await again.rows("select text, buttons from outbox where text like '%did this run?%'")
    assert "a letter" in text
    assert "send, which may have run" in text
    assert [button["value"] for button in buttons] == ["/approve A1", "/deny A1 it ran", "/deny A1 give up"]


@pytest.mark.parametrize(
    ("answer", "reply", "ran", "end", "words"),
    [
        ("/approve A1", "the call runs again", ["a letter"], "completed", "the end: ['a letter']"),
        ("/deny A1 it ran", "isn't repeated", [], "completed", "the end: [True]"),
        ("/deny A1 give up", "the task ends", [], "failed", "A1 gave it up"),
        ("/deny A1", "the task ends", [], "failed", "A1 gave it up"),
    ],
)
async def test_the_task_goes_on_by_the_answer(
    path: MessagePath, answer: str, reply: str, ran: list[str], end: str, words: str
) -> None:
    again = await killed(path, "a letter")
    await run_dry(again)
    async with again.working():
        assert reply in await again.ask(answer)
        await until(again, over)
    assert (await statuses(again), again.workshop.ran) == ([end], ran)
    assert any(words in text for text in await told(again))


async def test_a_yes_counts_for_one_run(path: MessagePath) -> None:
    again = await killed(path, "a letter")
    await run_dry(again)
    reached = again.workshop.hang()
    async with again.working():
        await again.ask("/approve A1")
        await reached.wait()
    third = await restarted(again, FakeModel(answer=sends("a letter")))
    assert again.workshop.ran == ["a letter"]
    await run_dry(third)
    assert (await statuses(third), third.workshop.ran) == (["needs_human_review"], [])
    assert await third.rows("select id, state, told_at is not null, response from reviews") == [(1, "open", True, None)]
    async with third.working():
        await third.ask("/deny A1 it ran")
        await until(third, over)
    assert (await statuses(third), third.workshop.ran) == (["completed"], [])


async def test_it_waits_for_the_answers_to_all_its_calls(path: MessagePath) -> None:
    again = await killed(path, "one", "two")
    await run_dry(again)
    async with again.working():
        await again.ask("/approve A1")
        await until(again, lambda found: found == ["needs_human_review"])
        assert again.workshop.ran == []
        await again.ask("/deny A2 it ran")
        await until(again, over)
    assert again.workshop.ran == ["one"]
    assert any("'one'" in text and "True" in text for text in await told(again))


async def test_one_that_nobody_answers_fails_its_task(path: MessagePath) -> None:
    again = await killed(path, "a letter")
    await run_dry(again)
    await again.rows("update reviews set expires_at = now() - interval '1 minute' returning id")
    await again.questions.look()
    await run_dry(again)
    assert (await statuses(again), again.workshop.ran) == (["failed"], [])


@pytest.mark.parametrize("tool", ["look", "put"])
async def test_what_may_run_twice_is_repeated_and_nobody_is_asked(path: MessagePath, tool: str) -> None:
    again = await killed(path, "a book", tool=tool)
    await run_dry(again)
    assert (await statuses(again), again.workshop.ran) == (["completed"], ["a book"])
    assert await again.rows("select count(*) from reviews") == [(0,)]


async def test_what_changes_the_workspace_alone_is_for_the_agent_to_look_at(path: MessagePath) -> None:
    again = await killed(path, "a file", tool="edit")
    await run_dry(again)
    assert (await statuses(again), again.workshop.ran) == (["completed"], [])
    assert await again.rows("select count(*) from reviews") == [(0,)]
    assert any("may_have_run" in text for text in await told(again))


async def test_what_cannot_have_run_is_not_asked_about(path: MessagePath) -> None:
    again = await killed(path, "a letter")
    await again.rows("update messages set text = '{\"text\": [1]}' where kind = 'tool_intent' returning id")
    await run_dry(again)
    assert await again.rows("select count(*) from reviews") == [(0,)]
    assert any("invalid_arguments" in text for text in await told(again))

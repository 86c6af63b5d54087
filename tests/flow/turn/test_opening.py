"""A prompt that nobody waits for is said once, and read again as often as it must be."""

import pytest

from gateway.domain.conversation.model import ToolCall
from gateway.domain.conversation.transcript import AssistantText, ToolIntent
from gateway.domain.errors import RunLost
from gateway.domain.ids import SessionId
from gateway.domain.principals import Label
from gateway.domain.work.tasks import Claim, Lane
from gateway.flow.turn.opening import OpenedTurn, PromptOpening
from gateway.flow.turn.steps import Fence
from gateway.store.transcript import messages, sessions, tool_calls
from gateway.store.work import tasks
from tests.flow.path import MessagePath


async def claimed(path: MessagePath, session: SessionId | None = None) -> Claim:
    owner = path.people.owner.id
    async with path.database.transaction() as tx:
        session = session or await sessions.start(tx, owner, Label.OWNER)
        await tasks.create(tx, owner, "agent", Lane.AGENTS, session=session)
    return await path.claim(Lane.AGENTS)


async def opens(path: MessagePath, run: Claim, label: Label = Label.OWNER) -> OpenedTurn | None:
    async with path.database.transaction() as tx:
        return await PromptOpening(run=run, prompt="Look around.", label=label, origin="schedule").open(tx)


async def opened(path: MessagePath, run: Claim, label: Label = Label.OWNER) -> OpenedTurn:
    found = await opens(path, run, label)
    assert found is not None
    return found


async def test_the_prompt_is_an_open_question_of_the_run_itself(path: MessagePath) -> None:
    run = await claimed(path)
    found = await opened(path, run)
    [row] = found.asked
    assert (row.kind, row.text, row.origin, row.task_id) == ("user", "Look around.", "schedule", run.id)
    assert found.at is None
    assert found.caller(Fence(path.database, run)).address is None
    assert found.principal == path.people.owner


async def test_it_is_said_once_however_often_it_is_opened(path: MessagePath) -> None:
    run = await claimed(path)
    first = await opened(path, run)
    again = await opened(path, run)
    assert first.asked_ids == again.asked_ids
    async with path.database.transaction() as tx:
        third = await first.opening.open(tx)
    assert third is not None
    assert third.asked_ids == first.asked_ids


async def test_what_a_crash_left_of_it_is_found_again(path: MessagePath) -> None:
    run = await claimed(path)
    found = await opened(path, run)
    intent = ToolIntent(ToolCall("c", "look", "{}"), 0)
    async with path.database.transaction() as tx:
        await tool_calls.intend(tx, found.session, run.principal_id, run.id, [intent], Label.OWNER)
    again = await opened(path, run)
    assert again.pending() == (intent,)
    assert again.first_ordinal == 1


async def test_the_session_is_trusted_no_more_than_the_prompt(path: MessagePath) -> None:
    run = await claimed(path)
    assert (await opened(path, run, Label.UNTRUSTED)).label is Label.UNTRUSTED
    assert (await opened(path, run, Label.OWNER)).label is Label.UNTRUSTED


async def test_what_has_been_answered_is_over(path: MessagePath) -> None:
    run = await claimed(path)
    found = await opened(path, run)
    async with path.database.transaction() as tx:
        said, whose = AssistantText("All is well."), run.principal_id
        await messages.say(tx, found.session, whose, said, label=Label.OWNER, task=run.id, answers=True)
    assert await opens(path, run) is None
    assert await path.rows("select status from tasks where id = $1", run.id) == [("completed",)]


async def test_the_next_one_of_a_conversation_sees_what_came_before(path: MessagePath) -> None:
    first = await claimed(path)
    before = await opened(path, first)
    async with path.database.transaction() as tx:
        await tasks.cancel(tx, first.id)
    found = await opened(path, await claimed(path, before.session))
    assert [row.open for row in found.transcript] == [False, True]
    assert len(found.asked) == 1


async def test_whoever_lost_the_task_says_nothing(path: MessagePath) -> None:
    run = await claimed(path)
    async with path.database.transaction() as tx:
        await tasks.cancel(tx, run.id)
    with pytest.raises(RunLost):
        await opens(path, run)
    assert await path.transcript() == []

import json

import pytest

from gateway.domain.conversation.model import ToolCall
from gateway.domain.principals import Label
from tests.fakes.eventually import eventually
from tests.flow.path import MEMBER, MessagePath, in_turn, said
from tests.sandbox.tiers import confines


async def test_without_a_turn_there_is_nothing_to_stop(path: MessagePath) -> None:
    assert await path.ask("/stop") == "Nothing is running."


async def test_it_stops_what_waits_here_and_nowhere_else(path: MessagePath) -> None:
    mine = await path.tell("mine")
    other = await path.tell("other", chat=MEMBER, sender=MEMBER)
    assert await path.ask("/stop") == "Stopped."
    async with path.working():
        assert (await path.answer(mine)).text == "Stopped."
        assert (await path.answer(other)).text == "re: other"
        assert await path.ask("/stop") == "Nothing is running."


async def test_what_was_said_stays_in_the_session(path: MessagePath) -> None:
    before = await path.tell("one")
    await path.tell("/stop")
    async with path.working():
        after = await path.tell("two")
        await path.answer(after)
    assert before.session_id == after.session_id


@pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")
async def test_it_ends_the_processes_of_its_conversation(path: MessagePath) -> None:
    start = ToolCall("", "spawn", json.dumps({"action": "start", "command": "sleep 600"}))
    path.model.answer = in_turn(said("", start), said("started"))
    async with path.working():
        assert await path.ask("start it") == "started"
        processes = path.environments.own.processes
        assert processes is not None
        [one] = processes.all
        assert await path.rows("select count(*) from running_commands") == [(0,)], "its person's own"
        assert await path.ask("/stop answer") == "Nothing is running."
        assert one.report is None
        assert await path.ask("/stop") == "Stopped. 1 process ended."
        await eventually(lambda: one.report is not None)
        assert await path.ask("/stop") == "Nothing is running."
    await path.jail.close()


@pytest.mark.skipif(not confines(), reason="this kernel cannot confine a command")
async def test_what_others_write_beside_a_process_makes_it_untrusted(path: MessagePath) -> None:
    start = ToolCall("", "spawn", json.dumps({"action": "start", "command": "sleep 600"}))
    path.model.answer = in_turn(said("", start), said("started"))
    async with path.working():
        await path.ask("start it")
    environment = path.environments.of(path.people.owner.id)
    await environment.workspace.write("notes/page.md", "their words", Label.UNTRUSTED)
    processes = path.environments.own.processes
    assert processes is not None
    [one] = processes.all
    assert one.label is Label.UNTRUSTED
    assert await path.rows("select count(*) from running_commands") == [(1,)]
    await processes.close()
    assert await path.rows("select count(*) from running_commands") == [(0,)]
    await path.jail.close()

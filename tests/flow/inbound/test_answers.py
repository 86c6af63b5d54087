"""Waiting for what is said to one message."""

import asyncio

import pytest

from gateway.domain.channels.routing import StartTurn
from gateway.flow.inbound import answers as answers_module
from gateway.flow.inbound.answers import Answer
from gateway.flow.inbound.persistence import Accepted
from gateway.flow.live import TextWritten
from gateway.store.work.steps import ModelUse
from tests.flow.path import FakeModel, MessagePath, build, call, in_turn, restarted, said


async def test_the_answer_comes_with_what_it_cost(path: MessagePath) -> None:
    path.model.answer = in_turn(said("", call("look", text="x")), said("done"))
    async with path.working():
        answer = await path.answer(await path.tell("go"))
    assert (answer.text, answer.notice, answer.spent) == ("done", False, ModelUse(2, 20, 10, 0.002))
    assert await path.rows("select text from messages where id = $1", answer.message_id) == [("done",)]


async def test_it_waits_across_the_events_of_a_turn_and_of_others(path: MessagePath) -> None:
    path.model.gate = asyncio.Event()
    accepted = await path.tell("hello")
    assert accepted.session_id is not None
    async with path.working():
        waiting = asyncio.create_task(path.answer(accepted))
        await path.model.called.wait()
        for _ in range(1500):
            path.live.publish(accepted.session_id, TextWritten("…"))
        assert (await path.answer(await path.tell("/ping"))).text.startswith("pong")
        assert not waiting.done()
        path.model.gate.set()
        assert (await waiting).text == "re: hello"


async def test_many_may_wait_for_the_same_answer(path: MessagePath) -> None:
    accepted = await path.tell("hello")
    async with path.working():
        answers = await asyncio.gather(*(path.answer(accepted) for _ in range(5)))
    assert {answer.text for answer in answers} == {"re: hello"}


async def test_a_duplicate_waits_for_the_first_ones_answer_even_after_a_restart(path: MessagePath) -> None:
    await path.tell("hello", id="m-dup")
    again = await restarted(path)
    twin = await again.tell("hello", id="m-dup")
    assert twin.duplicate
    async with again.working():
        assert (await again.answer(twin)).text == "re: hello"
    assert (await (await restarted(again)).answer(twin)).text == "re: hello"


async def test_an_answer_another_process_commits_is_found(path: MessagePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers_module, "POLL_SECONDS", 0.02)
    other = await build(path.database, path.workspace, FakeModel())
    accepted = await path.tell("hello")
    waiting = asyncio.create_task(path.answer(accepted))
    await other.turns.run(await other.claim())
    assert (await waiting).text == "re: hello"


async def test_a_closed_message_is_said_to_be_stopped(path: MessagePath) -> None:
    accepted = await path.tell("hello")
    waiting = asyncio.create_task(path.answer(accepted))
    await path.tell("/stop")
    assert await waiting == Answer("Stopped.", notice=True)


async def test_a_commands_answer_is_its_reply(path: MessagePath) -> None:
    accepted = await path.tell("/last", id="c-last")
    answer = await path.answer(accepted)
    assert (answer.text, answer.notice) == ("There is no answer in this session yet.", True)
    assert (await path.answer(await (await restarted(path)).tell("/last", id="c-last"))) == answer


async def test_what_was_ignored_has_no_answer(path: MessagePath) -> None:
    assert await path.answer(await path.tell("/nonsense")) == Answer("", notice=True)


async def test_an_edit_is_answered_with_the_message_it_changed(path: MessagePath) -> None:
    await path.tell("helo", id="m-typo")
    edit = await path.tell("hello", edits="m-typo")
    async with path.working():
        assert (await path.answer(edit)).text == "re: hello"


async def test_without_an_arrival_there_is_nothing_to_wait_for(path: MessagePath) -> None:
    somewhere = (await path.tell("hello")).session_id
    assert await path.answer(Accepted(StartTurn(), session_id=somewhere)) == Answer("", notice=True)

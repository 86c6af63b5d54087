"""Slash commands beside a running turn, and when things go wrong."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.commands import Command, CommandContext, CommandReply
from gateway.config.clock import SystemClock
from gateway.config.failpoints import Failpoints
from gateway.domain.errors import DatabaseDown
from gateway.domain.ids import InboxId, TaskId
from gateway.flow.dispatch import Dispatch
from gateway.flow.inbound import InboundFlow
from gateway.store import inbox
from tests.flow.path import MessagePath, message


async def test_a_command_is_answered_without_the_model(path: MessagePath) -> None:
    async with path.working():
        await path.say("/ping")
        [reply] = await path.channel.until(bool)
    assert reply.startswith("pong · ")
    assert path.model.prompts == []
    assert await path.rows("select kind, handled_at is not null from inbox") == [("command", True)]


async def test_stop_ends_a_turn_whose_model_hangs(path: MessagePath) -> None:
    path.model.gate = asyncio.Event()
    async with path.working():
        stopped = await path.tell("hello")
        await path.model.called.wait()
        await path.tell("/stop")
        await asyncio.wait_for(path.model.let_go.wait(), 10)
        assert (await path.answer(stopped)).text == "Stopped."
        assert await path.channel.until(bool) == ["Stopped."]
        await path.worker.drain(10)
        assert path.worker.running == 0
    assert await path.rows("select status from tasks") == [("cancelled",)]
    assert stopped.session_id is not None
    assert path.live.written(stopped.session_id) is None


async def test_new_ends_the_turn_and_closes_what_it_had_taken_and_what_waited(path: MessagePath) -> None:
    path.model.gate = asyncio.Event()
    async with path.working():
        taken = await path.tell("taken")
        await path.model.called.wait()
        waiting = await path.tell("waiting")
        new = await path.tell("/new")
        await asyncio.wait_for(path.model.let_go.wait(), 10)
        assert [(await path.answer(a)).text for a in (taken, waiting)] == ["Stopped."] * 2
        assert "2 unanswered messages" in (await path.answer(new)).text
        path.model.gate = None
        assert await path.ask("after") == "re: after"
    assert await path.rows("select status from tasks order by seq") == [("cancelled",), ("completed",)]


async def test_the_reply_to_new_is_said_in_the_new_session(path: MessagePath) -> None:
    first, new = await path.say("hello", "/new")
    reply = await path.answer(new)
    [(session,)] = await path.rows("select session_id from messages where id = $1", reply.message_id)
    assert session != first.session_id
    assert str(session)[:8] in reply.text


def with_commands(path: MessagePath, commands: Mapping[str, Command]) -> tuple[InboundFlow, Dispatch]:
    cancelled: list[TaskId] = []
    dispatch = Dispatch(
        path.database,
        commands,
        path.model.describe,
        path.outbound,
        cancelled.extend,
        path.live,
        Hurried(),
        Failpoints(None),
    )
    inbound = InboundFlow(
        path.database,
        path.people,
        commands.keys(),
        dispatch,
        path.worker.wake,
        path.live,
        path.instance,
        Failpoints(None),
        path.journal,
        path.outages,
        path.notices,
        SystemClock(),
    )
    return inbound, dispatch


async def test_a_command_that_breaks_says_so_and_changes_nothing(path: MessagePath) -> None:
    async def broken(ctx: CommandContext) -> CommandReply:
        await ctx.tx.execute("update principals set name = 'Eve'")
        raise ZeroDivisionError

    inbound, _ = with_commands(path, {"break": Command("break", "breaks", broken)})
    accepted = await inbound.accept([message("/break"), message("hello")])
    assert (await path.answer(accepted[0])).text == "That command failed and changed nothing; the log says why."
    assert await path.rows("select name from principals") == [("Ada",)]
    assert accepted[1].message_id is not None


async def test_a_command_that_is_gone_after_an_update_is_answered_too(path: MessagePath) -> None:
    async def never(_: CommandContext) -> CommandReply:
        raise DatabaseDown("not yet")

    inbound, _ = with_commands(path, {"old": Command("old", "was here", never)})
    [accepted] = await inbound.accept([message("/old")])
    await path.dispatch.resume()
    assert (await path.answer(accepted)).text.startswith("That command failed")


class Hurried(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def test_a_command_that_met_an_outage_is_run_when_it_is_over(path: MessagePath) -> None:
    outages = [DatabaseDown("away")] * 3

    async def at_last(_: CommandContext) -> CommandReply:
        if outages:
            raise outages.pop()
        return CommandReply("done")

    inbound, dispatch = with_commands(path, {"late": Command("late", "", at_last)})
    [accepted] = await inbound.accept([message("/late")])
    retrying = asyncio.create_task(dispatch.retry())
    assert (await path.answer(accepted)).text == "done"
    retrying.cancel()
    await asyncio.wait([retrying])
    assert outages == []


async def test_two_who_run_the_same_command_run_it_once(path: MessagePath) -> None:
    ran: list[str] = []

    async def note(ctx: CommandContext) -> CommandReply:
        ran.append(ctx.argument)
        return CommandReply("noted")

    inbound, dispatch = with_commands(path, {"note": Command("note", "", note)})
    [accepted] = await inbound.accept([message("/note  milk ")])
    assert accepted.inbox_id is not None
    await asyncio.gather(*(dispatch.run(accepted.inbox_id) for _ in range(5)))
    assert ran == ["milk"]
    assert await path.rows("select count(*) from outbox") == [(1,)]


async def test_an_outage_during_the_next_try_means_another_one(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    outages = [DatabaseDown("away")] * 2
    really = inbox.unhandled

    async def unhandled(conn: Any) -> list[InboxId]:
        if outages:
            raise outages.pop()
        return await really(conn)

    async def second_time(_: CommandContext) -> CommandReply:
        if outages:
            raise DatabaseDown("away")
        return CommandReply("done")

    monkeypatch.setattr(inbox, "unhandled", unhandled)
    inbound, dispatch = with_commands(path, {"late": Command("late", "", second_time)})
    [accepted] = await inbound.accept([message("/late")])
    retrying = asyncio.create_task(dispatch.retry())
    assert (await path.answer(accepted)).text == "done"
    retrying.cancel()
    await asyncio.wait([retrying])

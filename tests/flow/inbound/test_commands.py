"""Slash commands beside a running turn, and when things go wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.commands import Command, CommandContext, CommandReply, new
from gateway.config.machine import SystemClock
from gateway.domain.errors import DatabaseDown
from gateway.domain.ids import InboxId
from gateway.flow.inbound import spool as spool_module
from gateway.flow.inbound.acceptance import InboundFlow
from gateway.flow.inbound.commands import CommandRunner
from gateway.flow.live import SessionReplaced
from gateway.store.delivery import inbox
from tests.flow.outage import AwayAtTimes
from tests.flow.path import FakeModel, MessagePath, build, message


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
    assert await path.rows("select status from tasks where kind = 'chat'") == [("cancelled",)]
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
    assert await path.rows("select status from tasks where kind = 'chat' order by seq") == [
        ("cancelled",),
        ("completed",),
    ]


async def test_the_reply_to_new_is_said_in_the_new_session(path: MessagePath) -> None:
    first, new = await path.say("hello", "/new")
    reply = await path.answer(new)
    [(session,)] = await path.rows("select session_id from messages where id = $1", reply.message_id)
    assert session != first.session_id
    assert str(session)[:8] in reply.text


def with_commands(path: MessagePath, commands: Mapping[str, Command]) -> tuple[InboundFlow, CommandRunner]:
    engine = replace(path.parts.core, clock=Hurried())
    command_runner = replace(path.command_runner, commands=commands, engine=engine)
    inbound = replace(path.inbound, commands=commands.keys(), run_command=command_runner.run)
    return inbound, command_runner


async def test_a_command_that_breaks_says_so_and_changes_nothing(path: MessagePath) -> None:
    async def broken(ctx: CommandContext) -> CommandReply:
        await ctx.tx.execute("update principals set name = 'Eve'")
        raise ZeroDivisionError

    inbound, _ = with_commands(path, {"break": Command("break", "breaks", broken)})
    accepted = await inbound.accept([message("/break"), message("hello")])
    assert (await path.answer(accepted[0])).text == "That command failed and changed nothing; the log says why."
    assert await path.rows("select name from principals") == [("Ada",)]
    assert accepted[1].message_id is not None


@pytest.fixture
async def away(dsn: str) -> AsyncIterator[AwayAtTimes]:
    async with await AwayAtTimes.connect(dsn) as database:
        yield database


async def test_the_log_has_the_error_of_a_command_that_the_database_leaves_as_well(
    away: AwayAtTimes, workspace: Path, model: FakeModel
) -> None:
    async def broken(_: CommandContext) -> CommandReply:
        away.away = True
        raise ZeroDivisionError

    path = await build(away, workspace, model)
    inbound, _ = with_commands(path, {"break": Command("break", "breaks", broken)})
    with capture_logs() as logs:
        await inbound.accept([message("/break")])
    away.away = False
    assert "command.failed" in [entry["event"] for entry in logs]


async def test_a_command_that_is_gone_after_an_update_is_answered_too(path: MessagePath) -> None:
    async def never(_: CommandContext) -> CommandReply:
        raise DatabaseDown("not yet")

    inbound, _ = with_commands(path, {"old": Command("old", "was here", never)})
    await inbound.accept([message("/old")])
    await path.command_runner.resume()
    [(reply,)] = await path.rows("select text from messages where kind = 'notice'")
    assert reply.startswith("That command failed")


async def test_what_follows_a_command_that_met_an_outage_waits_for_it(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spool_module, "RETRY_SECONDS", 0.01)
    outages = [DatabaseDown("away")]
    really = new.run

    async def delayed(ctx: CommandContext) -> CommandReply:
        if outages:
            raise outages.pop()
        return await really(ctx)

    inbound, _ = with_commands(path, {"new": Command("new", "", delayed)})
    await inbound.accept([message("before")])
    command, after = await inbound.accept([message("/new"), message("after it")])
    async with background(inbound.spool.run):
        await command.stored()
        stored = await after.stored()
    assert await path.rows("select text, closed_at is not null from messages where kind = 'user' order by id") == [
        ("before", True),
        ("after it", False),
    ]
    assert await path.rows("select session_id from addresses") == [(stored.session_id,)]


async def test_a_command_whose_commit_was_unknown_is_run_when_it_comes_again(path: MessagePath) -> None:
    dying = replace(path.inbound, run_command=Unheard().run)
    ping = message("/ping")
    await dying.accept([ping])
    [again] = await path.inbound.accept([ping])
    assert again.duplicate
    assert (await path.answer(again)).text.startswith("pong")


async def test_who_watches_hears_of_a_new_session_though_its_commit_was_unknown(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    hello = await path.tell("hello")
    assert hello.session_id is not None
    really, lost = path.database.run, [True]

    async def run(work: Any) -> Any:
        done = await really(work)
        if lost and await path.rows("select 1 from sessions where ended_at is not null"):
            lost.clear()
            raise DatabaseDown("gone at COMMIT")
        return done

    monkeypatch.setattr(path.database, "run", run)
    with path.live.subscribe(hello.session_id) as events:
        async with background(path.inbound.spool.run):
            await (await path.tell("/new")).stored()
        [(current,)] = await path.rows("select session_id from addresses")
        assert SessionReplaced(current) in events.ready()


class Unheard:
    """A dispatcher that is not told of a command, because the reply to its commit got lost."""

    async def run(self, arrival: int) -> bool:
        return True


@asynccontextmanager
async def background(*works: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    """With these running."""
    tasks = [asyncio.ensure_future(work()) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


class Hurried(SystemClock):
    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


async def test_a_command_that_met_an_outage_is_run_when_it_is_over(path: MessagePath) -> None:
    outages = [DatabaseDown("away")] * 3

    async def at_last(_: CommandContext) -> CommandReply:
        if outages:
            raise outages.pop()
        return CommandReply("done")

    inbound, command_runner = with_commands(path, {"late": Command("late", "", at_last)})
    [accepted] = await inbound.accept([message("/late")])
    async with background(command_runner.retry, inbound.spool.run):
        assert (await path.answer(accepted)).text == "done"
    assert outages == []


async def test_a_command_whose_reply_the_database_refuses_is_run_when_it_takes_replies(path: MessagePath) -> None:
    async def ping(_: CommandContext) -> CommandReply:
        return CommandReply("done")

    inbound, command_runner = with_commands(path, {"ping": Command("ping", "", ping)})
    async with path.database.connection() as conn:
        await conn.execute("alter table outbox add constraint none check (false) not valid")
    await inbound.accept([message("/ping")])
    [(left,)] = await path.rows("select id from inbox where handled_at is null")
    assert not await command_runner.run(left)
    async with path.database.connection() as conn:
        await conn.execute("alter table outbox drop constraint none")
    assert await command_runner.run(left)
    assert await path.rows("select text from outbox") == [("done",)]


async def test_two_who_run_the_same_command_run_it_once(path: MessagePath) -> None:
    ran: list[str] = []

    async def note(ctx: CommandContext) -> CommandReply:
        ran.append(ctx.argument)
        return CommandReply("noted")

    inbound, command_runner = with_commands(path, {"note": Command("note", "", note)})
    [accepted] = await inbound.accept([message("/note  milk ")])
    assert accepted.inbox_id is not None
    await asyncio.gather(*(command_runner.run(accepted.inbox_id) for _ in range(5)))
    assert ran == ["milk"]
    assert await path.rows("select count(*) from outbox") == [(1,)]


async def test_an_outage_during_the_next_try_means_another_one(
    path: MessagePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    outages = [DatabaseDown("away")] * 2
    really = inbox.open_commands

    async def unhandled(conn: Any) -> list[InboxId]:
        if outages:
            raise outages.pop()
        return await really(conn)

    async def second_time(_: CommandContext) -> CommandReply:
        if outages:
            raise DatabaseDown("away")
        return CommandReply("done")

    monkeypatch.setattr(inbox, "open_commands", unhandled)
    inbound, command_runner = with_commands(path, {"late": Command("late", "", second_time)})
    [accepted] = await inbound.accept([message("/late")])
    async with background(command_runner.retry, inbound.spool.run):
        assert (await path.answer(accepted)).text == "done"

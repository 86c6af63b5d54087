"""No act outside by a process that may have lost its task."""

import asyncio
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from structlog.testing import capture_logs

from gateway.domain.conversation.model import Attempt, Restarted, TextDelta, Waiting
from gateway.domain.conversation.transcript import Answered, Steered
from gateway.domain.errors import DatabaseDown, RunLost
from gateway.domain.ids import InstanceId
from gateway.domain.principals import Label
from gateway.flow.live import Live, ModelAwaited, TextDropped, TextWritten
from gateway.flow.turn.steps import ACT_WITHIN, Fence, LiveSink
from gateway.store.connection.pool import Database
from gateway.store.work import tasks
from tests.fakes.eventually import eventually
from tests.flow.outage import AwayAtTimes
from tests.flow.path import FakeModel, MessagePath, build, call, crash, in_turn, results, said
from tests.flow.turn.sleeper import MARK

EXPIRED = "update tasks set lease_until = now() - interval '1 s' where status = 'running' returning id"


def stopped(process: Process) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2].startswith("T")


@asynccontextmanager
async def sleeping(dsn: str, workspace: Path) -> AsyncIterator[Process]:
    """A second process that has stored its intent to send a letter, and then was stopped."""
    command = (sys.executable, "-m", "tests.flow.turn.sleeper", dsn, str(workspace))
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        await eventually(lambda: stopped(process))
        await asyncio.sleep(ACT_WITHIN)  # as any lease would last
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def said_by(process: Process) -> list[str]:
    process.send_signal(signal.SIGCONT)
    out, _ = await process.communicate()
    [line] = [line for line in out.decode().splitlines() if line.startswith(MARK)]
    return line.split("|")[1:]


async def taken_over(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute(EXPIRED)
        assert await tasks.recover(tx) == 1


class TestAProcessThatSlept:
    async def test_it_does_not_act_when_its_task_was_taken_over(
        self, database: Database, dsn: str, workspace: Path
    ) -> None:
        async with sleeping(dsn, workspace) as process:
            await taken_over(database)
            assert await said_by(process) == ["lost"]

    async def test_it_renews_its_lease_and_acts_where_nobody_has_taken_it(
        self, database: Database, dsn: str, workspace: Path
    ) -> None:
        async with sleeping(dsn, workspace) as process:
            async with database.transaction() as tx:
                assert await tx.fetch(EXPIRED)
            assert await said_by(process) == ["a letter", "answered"]


class TestFence:
    async def test_what_a_step_has_renewed_is_not_renewed_again(self, path: MessagePath) -> None:
        await path.tell("go")
        run, now = await path.claim(), 5.0
        fence = Fence(path.database, run, lambda: now)
        await fence.commit(lambda tx: tasks.progress(tx, run))
        await taken_over(path.database)
        now += ACT_WITHIN
        await fence.cross()
        now += 0.1
        with pytest.raises(RunLost):
            await fence.cross()

    async def test_a_database_that_takes_longer_than_the_second_starts_nothing(self, path: MessagePath) -> None:
        await path.tell("go")
        seconds = iter(range(0, 100, 2))
        fence = Fence(path.database, await path.claim(), lambda: next(seconds))
        with pytest.raises(DatabaseDown, match="nothing was done"):
            await fence.cross()

    async def test_a_call_that_meets_an_outage_at_the_fence_waits_for_its_end(self, path: MessagePath) -> None:
        await path.tell("go")
        database = AwayAtTimes(path.database._pool, path.database._members, direct=True)
        database.away = True
        crossing = asyncio.create_task(Fence(database, await path.claim()).cross())
        with capture_logs() as logs:
            await eventually(lambda: any(log["event"] == "call.waits" for log in logs))
        database.away = False
        await crossing

    async def test_a_call_that_only_reads_begins_in_an_outage_but_not_for_a_run_that_is_lost(
        self, path: MessagePath
    ) -> None:
        await path.tell("go")
        database = AwayAtTimes(path.database._pool, path.database._members, direct=True)
        run, now = await path.claim(), 5.0
        fence, database.away = Fence(database, run, lambda: now), True
        await fence.check()
        database.away = False
        await taken_over(path.database)
        await fence.check()  # the database has just not answered
        now += 60
        with pytest.raises(RunLost):
            await fence.check()

    async def test_a_call_that_only_reads_does_not_wait_for_a_database_that_is_silent(self, path: MessagePath) -> None:
        await path.tell("go")
        fence = Fence(path.database, run := await path.claim())
        async with path.database.transaction() as tx:
            await tasks.hold(tx, run)
            await asyncio.wait_for(fence.check(), 10)

    async def test_a_step_renews_the_lease(self, path: MessagePath) -> None:
        await path.tell("go")
        run = await path.claim()
        await path.rows(EXPIRED)
        async with path.database.transaction() as tx:
            await tasks.progress(tx, run)
        assert await path.rows("select lease_until > now() from tasks") == [(True,)]


@pytest.mark.parametrize("outage", [DatabaseDown("silent"), DatabaseDown("refuses")])
@pytest.mark.parametrize("tool", ["look", "put"])
async def test_a_turn_whose_call_met_an_outage_is_repeated_and_the_model_knows_of_none(
    path: MessagePath, tool: str, outage: DatabaseDown
) -> None:
    failures = [outage]

    async def fail() -> None:
        if failures:
            raise failures.pop()

    path.workshop.during = fail
    path.model.answer = in_turn(said("", call(tool, text="a")), said("done"))
    async with path.working():
        assert await path.ask("go") == "done"
    assert path.workshop.ran == ["a", "a"]
    assert results(path.model.prompts[-1]) == [{"did": "a"}]
    assert await path.rows("select distinct attempts from tasks where kind = 'chat'") == [(1,)]


class TestTakingOver:
    async def interrupted(self, path: MessagePath) -> MessagePath:
        """Its process was last heard of when it began to send, and another one finds its task."""
        path.model.answer = in_turn(said("", call("send", text="a letter")))
        reached = path.workshop.hang()
        await path.tell("send it")
        run = asyncio.create_task(path.turns.run(await path.claim()))
        await reached.wait()
        await crash(run)
        await taken_over(path.database)
        await path.rows("update tasks set run_at = now(), instance_id = null returning id")
        return await build(path.database, path.workspace, FakeModel(), InstanceId(uuid4()))

    async def silent(self, path: MessagePath, seconds: float) -> None:
        await path.rows("update tasks set silent_since = now() - $1::interval returning id", timedelta(seconds=seconds))

    async def test_nothing_is_said_of_an_act_that_may_be_under_way(self, path: MessagePath) -> None:
        other = await self.interrupted(path)
        await self.silent(path, 1)
        run = await other.claim()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await other.turns.run(run)
        assert other.model.prompts == []

    async def test_it_is_asked_about_once_its_time_is_over(self, path: MessagePath) -> None:
        other = await self.interrupted(path)
        await self.silent(path, 60)
        await other.turns.run(await other.claim())
        assert [result["error"] for result in results(other.model.prompts[0])] == ["may_have_run"]
        assert other.workshop.ran == []

    async def test_a_restart_knows_that_the_process_before_it_is_dead(self, path: MessagePath) -> None:
        await path.tell("go")
        await path.claim()
        async with path.database.connection() as conn:
            await tasks.died(conn, path.instance)
        assert (await path.claim()).silent_for is None

    async def test_how_long_the_process_before_has_been_silent_is_known(self, path: MessagePath) -> None:
        await path.tell("go")
        await path.claim()
        await taken_over(path.database)
        await path.rows("update tasks set run_at = now() returning id")
        silent = (await path.claim()).silent_for
        assert silent is not None
        assert silent > tasks.LEASE


async def test_a_screen_sees_text_and_where_it_starts_again(path: MessagePath) -> None:
    accepted = await path.tell("hello")
    assert accepted.session_id is not None
    live = Live()
    sink = LiveSink(live, accepted.session_id)
    with live.subscribe(accepted.session_id) as events:
        busy = Attempt("fake", "busy", "x")
        for event in (TextDelta("a"), Restarted(busy), Waiting(busy, 5), Steered((), Label.OWNER), Answered("b")):
            await sink.take(event)
        assert events.ready() == [TextWritten("a"), TextDropped(), ModelAwaited("fake", "busy", 5)]


async def test_a_screen_sees_tools_start_and_end(path: MessagePath) -> None:
    path.model.answer = in_turn(said("", call("look", text="x")), said("done"))
    accepted = await path.tell("go")
    assert accepted.session_id is not None
    with path.live.subscribe(accepted.session_id) as events:
        await path.turns.run(await path.claim())
        seen = [type(event).__name__ for event in events.ready()]
    assert seen == ["TurnStarted", "ToolStarted", "ToolEnded", "TextWritten", "MessageStored", "TurnEnded"]

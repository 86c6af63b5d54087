"""Claiming, running, giving back."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from gateway.background import worker as worker_module
from gateway.background.upkeep.timers import Periodic
from gateway.background.worker import Worker
from gateway.domain.errors import DatabaseDown, RunLost, TryAgainLater
from gateway.domain.ids import InstanceId, TaskId
from gateway.domain.principals import Label
from gateway.domain.work.schedules import ScheduleDefinition
from gateway.domain.work.tasks import SLOTS, Assignment, Claim, Lane, Status
from gateway.store.connection.pool import Connection, Database
from gateway.store.work import instances, schedule_runs, schedules, tasks
from tests.fakes.engine import engine_on
from tests.fakes.eventually import eventually
from tests.store.world import World, somebody


@dataclass
class Runner:
    """Does what a test says, else ends the task at once; notes what it was asked to do."""

    database: Database
    work: Callable[[Claim], Awaitable[None]] | None = None
    ran: asyncio.Queue[Claim] = field(default_factory=asyncio.Queue)
    gave_up: asyncio.Queue[Claim] = field(default_factory=asyncio.Queue)
    cancelled: asyncio.Queue[Claim] = field(default_factory=asyncio.Queue)

    async def run(self, run: Claim) -> None:
        self.ran.put_nowait(run)
        try:
            await (self.work(run) if self.work else self._finish(run, Status.COMPLETED))
        except asyncio.CancelledError:
            self.cancelled.put_nowait(run)
            raise

    async def give_up(self, run: Claim) -> None:
        await self._finish(run, Status.FAILED)
        self.gave_up.put_nowait(run)

    async def _finish(self, run: Claim, status: Status) -> None:
        async with self.database.transaction() as tx:
            await tasks.finish(tx, run, status)


@dataclass
class Poisoned(Runner):
    """Fails at everything until it is cured; or only the database is away, so many times, when it gives up."""

    cured: bool = False
    outages: int | None = None

    async def run(self, run: Claim) -> None:
        self.ran.put_nowait(run)
        if not self.cured:
            raise ZeroDivisionError
        await self._finish(run, Status.COMPLETED)

    async def give_up(self, run: Claim) -> None:
        self.gave_up.put_nowait(run)
        if self.outages is None:
            raise ZeroDivisionError
        if self.outages > 0:
            self.outages -= 1
            raise DatabaseDown("away")
        await self._finish(run, Status.FAILED)


def emptied(queue: "asyncio.Queue[Claim]") -> list[Claim]:
    return [queue.get_nowait() for _ in range(queue.qsize())]


async def hang(_: Claim) -> None:
    await asyncio.Event().wait()


@pytest.fixture
def runner(database: Database) -> Runner:
    return Runner(database)


async def tell_log(text: str) -> None:
    structlog.get_logger().warning(text)


async def in_order() -> bool:
    return True


async def nothing() -> None:
    """Nothing follows the end of a run."""


def worker_of(
    database: Database,
    runners: Mapping[str, Any],
    lanes: Collection[Lane] = (Lane.AGENTS,),
    me: InstanceId | None = None,
    *,
    tell: Callable[[str], Awaitable[None]] = tell_log,
    works: Callable[[], Awaitable[bool]] = in_order,
) -> Worker:
    """One that may run every kind of task."""
    return Worker(
        engine_on(database, instance=me or somebody()),
        runners,
        lanes,
        tell,
        works,
        ended=nothing,
        abandoned=schedule_runs.mark_failed,
        able=lambda _kind: True,
    )


@pytest.fixture
def worker(database: Database, runner: Runner) -> Worker:
    return worker_of(database, {"agent": runner})


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator["asyncio.Task[None]"]:
    running = asyncio.create_task(worker.run())
    beating = asyncio.create_task(Periodic("beat", 0.01, worker.beat).run())
    try:
        async with asyncio.timeout(20):
            yield running
    finally:
        running.cancel()
        beating.cancel()
        await asyncio.wait([running, beating])


async def test_an_idle_worker_rests_until_a_task_is_due(
    world: World, worker: Worker, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "POLL_SECONDS", 0.5)
    monkeypatch.setattr(worker_module, "REST_POLLS", 4000)
    really, claims, rests = tasks.claim, 0, asyncio.Queue[float]()

    async def claim(*arguments: Any) -> list[Any]:
        nonlocal claims
        claims += 1
        return await really(*arguments)

    async def due_in(conn: Connection, most: float) -> float:
        rests.put_nowait(seconds := await asked(conn, most))
        return seconds

    asked = tasks.due_in
    monkeypatch.setattr(tasks, "claim", claim)
    monkeypatch.setattr(tasks, "due_in", due_in)
    later = await world.queue(delay=2)
    async with working(worker):
        assert (await runner.ran.get()).id == later
        await until(world, later, Status.COMPLETED)
        assert 0 < await rests.get() < 2
        while await rests.get() != 2000:
            pass
    assert claims <= 4  # at the start, when it is due, and after its run
    async with world.database.connection() as conn:
        assert await instances.take_lease(conn, "instance another", somebody(), 60)
    monkeypatch.setattr(worker_module, "POLL_SECONDS", 0.02)
    async with working(worker):
        await eventually(lambda: claims > 10)  # beside another instance it goes on asking


async def until(world: World, task: TaskId, status: Status) -> None:
    """Wait for what another connection commits."""
    async with asyncio.timeout(10):
        while await world.status(task) is not status:
            pass


class TestTroubleWithTheDatabase:
    async def test_a_run_that_meets_an_outage_is_tried_again_at_no_cost(
        self, world: World, worker: Worker, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(worker_module, "POLL_SECONDS", 0.01)
        left = [DatabaseDown("away")] * 5

        async def work(run: Claim) -> None:
            if left:
                raise left.pop()
            await runner._finish(run, Status.COMPLETED)

        runner.work = work
        task = await world.queue()
        async with working(worker):
            await until(world, task, Status.COMPLETED)
        assert {run.attempts for run in emptied(runner.ran)} == {1}

    async def test_a_run_that_fails_while_the_database_refuses_others_too_loses_no_attempt(
        self, world: World, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(worker_module, "POLL_SECONDS", 0.01)
        left = [ValueError("refused by a trigger")] * 5

        async def work(run: Claim) -> None:
            if left:
                raise left.pop()
            await runner._finish(run, Status.COMPLETED)

        async def works() -> bool:
            return not left

        runner.work = work
        worker = worker_of(runner.database, {"agent": runner}, works=works)
        task = await world.queue()
        with capture_logs() as logs:
            async with working(worker):
                await until(world, task, Status.COMPLETED)
        assert max(run.attempts for run in emptied(runner.ran)) == 2  # the last one: it worked again by then
        told = [(line["event"], "exc_info" in line) for line in logs if line["event"] in ("run.waits", "run.failed")]
        assert told == [("run.waits", False)] * 4 + [("run.failed", True)]

    async def test_what_was_claimed_when_the_reply_got_lost_does_not_wait_for_its_lease(
        self, world: World, worker: Worker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(worker_module, "POLL_SECONDS", 0.01)
        really, lost = tasks.claim, [True]

        async def claim(*arguments: Any) -> list[Claim]:
            claimed = await really(*arguments)
            if claimed and lost:
                raise DatabaseDown(f"gone at the wrong moment: {lost.pop()}")
            return claimed

        monkeypatch.setattr(tasks, "claim", claim)
        task = await world.queue()
        async with working(worker):
            await until(world, task, Status.COMPLETED)
        assert lost == []


class TestRuns:
    async def test_what_waits_is_run_and_what_comes_later_as_soon_as_it_is_woken(
        self, world: World, worker: Worker, runner: Runner
    ) -> None:
        first = await world.queue()
        async with working(worker):
            assert (await runner.ran.get()).id == first
            second = await world.queue()
            worker.engine.signals.tasks.set()
            assert (await runner.ran.get()).id == second
            await until(world, second, Status.COMPLETED)

    async def test_what_nobody_told_it_of_is_found_by_polling(
        self, world: World, worker: Worker, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(worker_module, "POLL_SECONDS", 0.01)
        async with working(worker):
            task = await world.queue()
            assert (await runner.ran.get()).id == task

    async def test_a_lane_runs_no_more_than_its_slots_at_once(
        self, world: World, worker: Worker, runner: Runner
    ) -> None:
        go, runner_finish = asyncio.Event(), runner._finish

        async def wait(run: Claim) -> None:
            await go.wait()
            await runner_finish(run, Status.COMPLETED)

        runner.work = wait
        for _ in range(SLOTS[Lane.AGENTS] + 3):
            await world.queue()
        async with working(worker):
            for _ in range(SLOTS[Lane.AGENTS]):
                await runner.ran.get()
            worker.engine.signals.tasks.set()
            assert worker.running == SLOTS[Lane.AGENTS]
            assert await world.value("select count(*) from tasks where status = 'pending'") == 3
            go.set()
            for _ in range(3):
                await runner.ran.get()

    async def test_under_a_limit_fewer_run_at_once_and_those_under_way_go_on(
        self, world: World, worker: Worker, runner: Runner
    ) -> None:
        go, runner_finish = asyncio.Event(), runner._finish

        async def wait(run: Claim) -> None:
            await go.wait()
            await runner_finish(run, Status.COMPLETED)

        runner.work = wait
        for _ in range(5):
            await world.queue()
        async with working(worker):
            for _ in range(5):
                await runner.ran.get()
            worker.limit(2)
            late = [await world.queue() for _ in range(5)]
            go.set()
            await until(world, late[-1], Status.COMPLETED)
            assert runner.cancelled.empty()
            go.clear()
            emptied(runner.ran)
            for _ in range(5):
                await world.queue()
            worker.engine.signals.tasks.set()
            for _ in range(2):
                await runner.ran.get()
            assert worker.running == 2
            assert await world.value("select count(*) from tasks where status = 'pending'") == 3
            worker.limit(None)
            for _ in range(3):
                await runner.ran.get()
            go.set()

    async def test_a_full_lane_starves_no_other(self, world: World, database: Database, runner: Runner) -> None:
        runner.work = hang
        for _ in range(SLOTS[Lane.AGENTS] + 1):
            await world.queue()
        await world.chat(me := somebody())
        chat = Runner(database)
        both = worker_of(database, {"agent": runner, "chat": chat}, [Lane.AGENTS, Lane.CHAT], me)
        async with working(both):
            assert (await chat.ran.get()).kind == "chat"

    async def test_a_limit_is_of_each_lane(self, world: World, runner: Runner) -> None:
        runner.work = hang
        lanes = [Lane.AGENTS, Lane.FILES]
        for lane in lanes * 3:
            await world.queue(lane=lane)
        both = worker_of(runner.database, {"agent": runner}, lanes)
        both.limit(2)
        async with working(both):
            assert Counter([(await runner.ran.get()).lane for _ in range(4)]) == dict.fromkeys(lanes, 2)
            assert both.running == 4
            assert await world.value("select count(*) from tasks where status = 'pending'") == 2

    async def test_other_lanes_are_left_to_other_workers(self, world: World, worker: Worker, runner: Runner) -> None:
        await world.chat(somebody())
        task = await world.queue()
        async with working(worker):
            assert (await runner.ran.get()).id == task
        assert await world.value("select status from tasks where kind = 'chat'") == "pending"


class TestCrashes:
    async def test_a_crashed_run_goes_back_with_backoff_and_hurts_nobody(
        self, world: World, worker: Worker, runner: Runner
    ) -> None:
        async def crash(run: Claim) -> None:
            raise ZeroDivisionError("by\x00zero")

        runner.work = crash
        task = await world.queue()
        async with working(worker):
            await runner.ran.get()
            await until(world, task, Status.PENDING)
            runner.work = None
            other = await world.queue()
            worker.engine.signals.tasks.set()
            assert (await runner.ran.get()).id == other
        seconds = await world.value(
            "select extract(epoch from run_at - updated_at)::int from tasks where id = $1", task
        )
        assert seconds == 1
        assert await world.value("select error from tasks where id = $1", task) == "ZeroDivisionError: byzero"

    async def test_after_the_last_attempt_it_gives_up_at_once(
        self, world: World, worker: Worker, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def crash(_: Claim) -> None:
            raise ZeroDivisionError

        runner.work = crash
        monkeypatch.setattr(worker_module, "backoff", lambda _: 3600.0)
        task = await world.queue(max_attempts=1)
        async with working(worker):
            given_up = await runner.gave_up.get()
        assert (given_up.id, given_up.attempts) == (task, 2)
        assert runner.ran.qsize() == 1
        assert await world.status(task) is Status.FAILED

    async def test_a_kind_nobody_runs_is_left_to_a_worker_that_knows_it(
        self, world: World, worker: Worker, runner: Runner
    ) -> None:
        strange = await world.queue(kind="strange")
        known = await world.queue()
        async with working(worker):
            assert (await runner.ran.get()).id == known
            await until(world, known, Status.COMPLETED)
        claims = await world.value("select (status, token, attempts, error) from tasks where id = $1", strange)
        assert claims == ("pending", 0, 0, None)

    async def test_a_run_that_was_taken_over_is_left_alone(self, world: World, worker: Worker, runner: Runner) -> None:
        async def lose(run: Claim) -> None:
            await world.do("update tasks set token = token + 1 where id = $1", run.id)
            raise RunLost("gone")

        runner.work = lose
        task = await world.queue()
        async with working(worker):
            await runner.ran.get()
            await worker.drain(5)
            assert await world.status(task) is Status.RUNNING

    async def test_one_that_crashes_after_it_was_taken_over_too(
        self, world: World, worker: Worker, runner: Runner
    ) -> None:
        async def crash(run: Claim) -> None:
            await world.do("update tasks set token = token + 1 where id = $1", run.id)
            raise ZeroDivisionError

        runner.work = crash
        task = await world.queue()
        async with working(worker):
            await runner.ran.get()
            await worker.drain(5)
            assert await world.status(task) is Status.RUNNING


class TestPoison:
    """What no attempt survives ends all the same, and nobody else notices."""

    @pytest.fixture(autouse=True)
    def at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(worker_module, "backoff", lambda _: 0.0)

    @pytest.fixture
    def told(self) -> "asyncio.Queue[str]":
        return asyncio.Queue()

    @pytest.fixture
    def poisoned(self, database: Database) -> "Poisoned":
        return Poisoned(database)

    async def test_a_task_that_cannot_even_be_given_up_ends_and_closes_its_messages(
        self, world: World, database: Database, poisoned: "Poisoned", told: "asyncio.Queue[str]"
    ) -> None:
        await world.ask("poison")
        await world.chat(me := somebody())
        worker = worker_of(database, {"chat": poisoned}, [Lane.CHAT], me, tell=told.put)
        async with working(worker):
            notice = await told.get()
        assert "messages left without an answer: 1" in notice
        assert poisoned.ran.qsize() == 3
        assert [run.attempts for run in emptied(poisoned.gave_up)] == [4, 5, 6]
        assert await world.column("select status from tasks") == ["failed"]
        assert await world.value("select closed_at is not null from messages") is True

    async def test_the_next_message_starts_afresh(
        self, world: World, database: Database, poisoned: "Poisoned", told: "asyncio.Queue[str]"
    ) -> None:
        await world.ask("poison")
        await world.chat(me := somebody())
        worker = worker_of(database, {"chat": poisoned}, [Lane.CHAT], me, tell=told.put)
        async with working(worker):
            await told.get()
            poisoned.cured = True
            emptied(poisoned.ran)
            await world.ask("again")
            await world.chat(me)
            worker.engine.signals.tasks.set()
            assert (await poisoned.ran.get()).attempts == 1

    async def test_other_chats_go_on_meanwhile(
        self, world: World, database: Database, runner: Runner, poisoned: "Poisoned", told: "asyncio.Queue[str]"
    ) -> None:
        for _ in range(3):
            await world.queue(kind="poison")
        worker = worker_of(database, {"poison": poisoned, "agent": runner}, tell=told.put)
        async with working(worker):
            for _ in range(5):
                healthy = await world.queue()
                worker.engine.signals.tasks.set()
                assert (await runner.ran.get()).id == healthy
                await until(world, healthy, Status.COMPLETED)
            for _ in range(3):
                await told.get()
        assert await world.column("select distinct status from tasks where kind = 'poison'") == ["failed"]

    async def test_a_task_that_kills_the_process_each_time_ends_too(
        self, world: World, database: Database, runner: Runner, told: "asyncio.Queue[str]"
    ) -> None:
        me, task = somebody(), await world.queue()
        for _ in range(7):  # the first is counted for nobody, and three are met while it is only given up
            [run] = await world.claim(me)
            async with database.connection() as conn:
                await tasks.died(conn, me)
            await world.do("update tasks set held_until = null")
        assert (run.attempts, run.give_ups) == (1, 3)
        async with working(worker_of(database, {"agent": runner}, me=me, tell=told.put)):
            await told.get()
        assert (runner.ran.qsize(), runner.gave_up.qsize()) == (0, 0)
        assert await world.status(task) is Status.FAILED

    async def test_the_slot_it_was_for_says_so(
        self, world: World, database: Database, poisoned: "Poisoned", told: "asyncio.Queue[str]"
    ) -> None:
        slot = datetime(2026, 11, 23, 7, 30, tzinfo=UTC)
        async with database.transaction() as tx:
            row = await schedules.add(
                tx,
                world.principal,
                ScheduleDefinition("n", "go", None),
                next_run_at=None,
                origin="cli",
                label=Label.OWNER,
            )
            assert row is not None
            order = Assignment(prompt="go", name="n", origin="schedule", label=Label.OWNER, schedule=row.id, slot=slot)
            await schedules.fire(tx, row, order)
        async with working(worker_of(database, {"agent": poisoned}, tell=told.put)):
            await told.get()
        assert await world.column("select error from schedule_runs") == ["giving up failed"]

    async def test_a_parent_is_told_of_a_child_that_ended_so(
        self, world: World, worker: Worker, poisoned: "Poisoned", database: Database, told: "asyncio.Queue[str]"
    ) -> None:
        parent = await world.queue()
        [run] = await world.claim(somebody())
        await world.queue(kind="poison", parent=parent)
        async with database.transaction() as tx:
            await tasks.suspend(tx, run, Status.PENDING_SUBTASK)
        runner = Runner(database)
        both = worker_of(database, {"poison": poisoned, "agent": runner}, tell=told.put)
        async with working(both):
            assert (await runner.ran.get()).id == parent

    async def test_an_outage_while_giving_up_is_no_failed_attempt(
        self, world: World, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(worker_module, "POLL_SECONDS", 0.01)
        flaky = Poisoned(database, outages=5)
        await world.queue(kind="poison")
        async with working(worker_of(database, {"poison": flaky})):
            for _ in range(6):
                assert (await flaky.gave_up.get()).attempts == 4
            await until(world, (await world.column("select id from tasks"))[0], Status.FAILED)
        assert await world.value("select error from tasks") is None


class TestStops:
    async def test_being_told_twice_does_not_disturb_a_run_that_cleans_up(
        self, world: World, worker: Worker, runner: Runner
    ) -> None:
        cleaning, go_on, cleaned = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def work(_: Claim) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cleaning.set()
                await go_on.wait()
                cleaned.set()

        runner.work = work
        await world.queue()
        async with working(worker):
            run = await runner.ran.get()
            worker.cancel([run.id])
            await cleaning.wait()
            worker.cancel([run.id])
            go_on.set()
            await worker.settle()
        assert cleaned.is_set()

    async def test_a_cancelled_run_stops(self, world: World, worker: Worker, runner: Runner) -> None:
        runner.work = hang
        task, other = await world.queue(), await world.queue()
        async with working(worker):
            for _ in range(2):
                await runner.ran.get()
            async with world.database.transaction() as tx:
                lost = await tasks.cancel(tx, task)
            worker.cancel([*lost, TaskId(somebody())])
            assert (await runner.cancelled.get()).id == task
            assert await world.status(other) is Status.RUNNING
        assert await world.status(task) is Status.CANCELLED

    async def test_a_stop_gives_back_what_it_interrupts(self, world: World, worker: Worker, runner: Runner) -> None:
        runner.work = hang
        task = await world.queue()
        async with working(worker):
            await runner.ran.get()
        assert await world.status(task) is Status.PENDING
        [again] = await world.claim(somebody())
        assert again.attempts == 1

    async def test_draining_lets_runs_come_to_their_end_and_starts_none(
        self, world: World, worker: Worker, runner: Runner
    ) -> None:
        go = asyncio.Event()

        async def wait(run: Claim) -> None:
            await go.wait()
            await runner._finish(run, Status.COMPLETED)

        runner.work = wait
        first = await world.queue()
        async with working(worker):
            await runner.ran.get()
            await worker.drain(0.01)
            assert worker.running == 1
            late = await world.queue()
            worker.engine.signals.tasks.set()
            go.set()
            await worker.drain(10)
            assert worker.running == 0
        assert (await world.status(first), await world.status(late)) == (Status.COMPLETED, Status.PENDING)

    async def test_draining_an_idle_worker_takes_no_time(self, worker: Worker) -> None:
        await worker.drain(10)
        assert worker.running == 0


class TestBeats:
    async def test_a_run_whose_lease_was_lost_is_stopped(self, world: World, worker: Worker, runner: Runner) -> None:
        runner.work = hang
        lost, kept = await world.queue(), await world.queue()
        async with working(worker):
            for _ in range(2):
                await runner.ran.get()
            await world.do("update tasks set token = token + 1 where id = $1", lost)
            assert (await runner.cancelled.get()).id == lost
            assert worker.running == 1
            assert await world.status(kept) is Status.RUNNING

    async def test_leases_are_renewed_while_a_run_lasts(self, world: World, worker: Worker, runner: Runner) -> None:
        runner.work = hang
        task = await world.queue()
        async with working(worker):
            await runner.ran.get()
            await world.do("update tasks set lease_until = now() + interval '1 s'")
            async with asyncio.timeout(10):
                while not await world.value("select lease_until > now() + interval '20 s' from tasks"):
                    assert await world.status(task) is Status.RUNNING

    async def test_what_a_dead_worker_left_is_run_again(self, world: World, worker: Worker, runner: Runner) -> None:
        task = await world.queue()
        await world.claim(somebody())
        await world.do("update tasks set lease_until = now() - interval '1 s'")
        async with working(worker):
            assert ((again := await runner.ran.get()).id, again.attempts) == (task, 1)

    async def test_a_beat_that_fails_stops_nothing(
        self, world: World, worker: Worker, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        runner.work = hang
        failures: asyncio.Queue[None] = asyncio.Queue()
        errors = itertools.cycle([DatabaseDown, TryAgainLater])

        async def fail(*_: object) -> set[TaskId]:
            failures.put_nowait(None)
            raise next(errors)("busy")

        monkeypatch.setattr(tasks, "heartbeat", fail)
        await world.queue()
        async with working(worker):
            await runner.ran.get()
            for _ in range(4):
                await failures.get()
            assert (worker.running, runner.cancelled.empty()) == (1, True)


class TestOutages:
    async def test_claiming_goes_on_when_the_database_is_back(
        self, world: World, worker: Worker, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        really, outages = tasks.claim, [DatabaseDown("away")] * 2

        async def claim(*arguments: object) -> list[Claim]:
            if outages:
                worker.engine.signals.tasks.set()
                raise outages.pop()
            return await really(*arguments)

        monkeypatch.setattr(tasks, "claim", claim)
        task = await world.queue()
        async with working(worker):
            assert (await runner.ran.get()).id == task

    async def test_a_crashed_run_is_given_back_however_long_the_database_is_away(
        self, world: World, worker: Worker, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        really, outages = tasks.requeue, [DatabaseDown("away")] * 2

        async def requeue(*arguments: object, **more: object) -> None:
            if outages:
                raise outages.pop()
            await really(*arguments, **more)

        async def crash(run: Claim) -> None:
            raise ZeroDivisionError

        runner.work = crash
        monkeypatch.setattr(tasks, "requeue", requeue)
        monkeypatch.setattr(worker_module, "POLL_SECONDS", 0.01)
        task = await world.queue()
        async with working(worker):
            await runner.ran.get()
            await until(world, task, Status.PENDING)

    async def test_a_stop_without_a_database_is_a_stop(
        self, world: World, worker: Worker, runner: Runner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def release(*_: object, **__: object) -> int:
            raise DatabaseDown("away")

        runner.work = hang
        monkeypatch.setattr(tasks, "release", release)
        task = await world.queue()
        async with working(worker) as running:
            await runner.ran.get()
        assert running.cancelled()
        assert await world.status(task) is Status.RUNNING

"""Claiming, running, giving back."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from gateway.background import worker as worker_module
from gateway.background.worker import Worker
from gateway.domain.errors import DatabaseDown, RunLost, TryAgainLater
from gateway.domain.ids import TaskId
from gateway.domain.tasks import SLOTS, Claim, Lane, Status
from gateway.store import tasks
from gateway.store.pool import Database
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


async def hang(_: Claim) -> None:
    await asyncio.Event().wait()


@pytest.fixture
def runner(database: Database) -> Runner:
    return Runner(database)


@pytest.fixture
def worker(database: Database, runner: Runner) -> Worker:
    return Worker(database, somebody(), {"agent": runner}, [Lane.AGENTS])


@asynccontextmanager
async def working(worker: Worker) -> AsyncIterator["asyncio.Task[None]"]:
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(20):
            yield running
    finally:
        running.cancel()
        await asyncio.wait([running])


async def until(world: World, task: TaskId, status: Status) -> None:
    """Wait for what another connection commits."""
    async with asyncio.timeout(10):
        while await world.status(task) is not status:
            pass


class TestRuns:
    async def test_what_waits_is_run_and_what_comes_later_as_soon_as_it_is_woken(
        self, world: World, worker: Worker, runner: Runner
    ) -> None:
        first = await world.queue()
        async with working(worker):
            assert (await runner.ran.get()).id == first
            second = await world.queue()
            worker.wake()
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
            worker.wake()
            assert worker.running == SLOTS[Lane.AGENTS]
            assert await world.value("select count(*) from tasks where status = 'pending'") == 3
            go.set()
            for _ in range(3):
                await runner.ran.get()

    async def test_a_full_lane_starves_no_other(self, world: World, database: Database, runner: Runner) -> None:
        runner.work = hang
        for _ in range(SLOTS[Lane.AGENTS] + 1):
            await world.queue()
        await world.chat(me := somebody())
        chat = Runner(database)
        both = Worker(database, me, {"agent": runner, "chat": chat}, [Lane.AGENTS, Lane.CHAT])
        async with working(both):
            assert (await chat.ran.get()).kind == "chat"

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
            worker.wake()
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

    async def test_a_kind_nobody_runs_goes_back_too(self, world: World, worker: Worker, runner: Runner) -> None:
        strange = await world.queue(kind="strange")
        known = await world.queue()
        async with working(worker):
            assert (await runner.ran.get()).id == known
            await until(world, strange, Status.PENDING)
        assert await world.value("select error from tasks where id = $1", strange) == "KeyError: 'strange'"

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
            worker.wake()
            go.set()
            await worker.drain(10)
            assert worker.running == 0
        assert (await world.status(first), await world.status(late)) == (Status.COMPLETED, Status.PENDING)

    async def test_draining_an_idle_worker_takes_no_time(self, worker: Worker) -> None:
        await worker.drain(10)
        assert worker.running == 0


class TestBeats:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(worker_module, "BEAT_SECONDS", 0.01)

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
            async with asyncio.timeout(10):
                while await world.value("select worker is not null from tasks"):
                    assert runner.ran.empty()
            await world.do("update tasks set run_at = now() - interval '1 s'")
            worker.wake()
            assert ((again := await runner.ran.get()).id, again.attempts) == (task, 2)

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
                worker.wake()
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

"""The worker: claims tasks lane by lane, runs them under a lease, gives back what it cannot finish."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

import structlog

from gateway.domain.errors import RunLost, TryAgainLater
from gateway.domain.ids import InstanceId, TaskId
from gateway.domain.tasks import BEAT_SECONDS, SLOTS, Claim, Lane, backoff
from gateway.flow.wakeup import Wakeup
from gateway.store import tasks
from gateway.store.pool import Database

POLL_SECONDS = 2.0

log = structlog.get_logger(__name__)


class Runner(Protocol):
    """Runs the tasks of one kind."""

    async def run(self, run: Claim) -> None:
        """Do the work and end the task through its own transaction; raises `RunLost` when it no longer owns it."""
        ...

    async def give_up(self, run: Claim) -> None:
        """The attempts are used up: end the task with whatever is owed to a person or a parent."""
        ...


class Worker:
    """One per process; tasks are claimed only in the lanes given."""

    def __init__(
        self, database: Database, instance: InstanceId, runners: Mapping[str, Runner], lanes: Iterable[Lane]
    ) -> None:
        self._database = database
        self._instance = instance
        self._runners = runners
        self._lanes = tuple(lanes)
        self._awake = Wakeup()
        self._draining = False
        self._running: dict[TaskId, tuple[Claim, Lane, asyncio.Task[None]]] = {}

    def wake(self) -> None:
        """There is something to claim."""
        self._awake.set()

    def cancel(self, lost: Iterable[TaskId]) -> None:
        """Stop these runs if they are ours; their tasks have been cancelled or taken over already.

        Being told twice, by the command and by the database, must not disturb a run that is cleaning up.
        """
        for id in lost:
            if id in self._running and not (run := self._running[id][2]).cancelling():
                run.cancel()

    @property
    def running(self) -> int:
        """How many runs are under way here."""
        return len(self._running)

    async def run(self) -> None:
        """Claim and run until cancelled; then the runs under way are cancelled and given back."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._beat(), name="worker beat")
                while True:
                    self._awake.clear()
                    try:
                        await self._claim(group)
                    except TryAgainLater as exc:
                        log.warning("worker.waits", error=str(exc))
                    await self._awake.wait(POLL_SECONDS)
        finally:
            await self._release()

    async def drain(self, seconds: float) -> None:
        """Claim nothing more, and let the runs under way come to their end, for that long at most."""
        self._draining = True
        await self.settle(seconds)

    async def settle(self, seconds: float | None = None) -> None:
        """Wait for the runs that are under way now."""
        runs = [task for _, _, task in self._running.values()]
        if runs:
            await asyncio.wait(runs, timeout=seconds)

    async def _claim(self, group: asyncio.TaskGroup) -> None:
        for lane in () if self._draining else self._lanes:
            free = SLOTS[lane] - sum(used is lane for _, used, _ in self._running.values())
            if free <= 0:
                continue
            async with self._database.connection() as conn:
                claimed = await tasks.claim(conn, self._instance, lane, free)
            for run in claimed:
                task = group.create_task(self._run(run), name=f"{run.kind} {run.id}")
                self._running[run.id] = (run, lane, task)

    async def _run(self, run: Claim) -> None:
        """One run; nothing that goes wrong in it reaches another."""
        try:
            runner = self._runners[run.kind]
            with_ids = structlog.contextvars.bound_contextvars(task_id=str(run.id), session_id=str(run.session_id))
            with with_ids:
                await (runner.give_up(run) if run.exhausted else runner.run(run))
        except RunLost as exc:
            log.info("run.lost", task_id=str(run.id), reason=str(exc))
        except asyncio.CancelledError:
            log.info("run.cancelled", task_id=str(run.id))
        except Exception as exc:
            log.exception("run.failed", task_id=str(run.id), attempts=run.attempts)
            await self._give_back(run, f"{type(exc).__name__}: {exc}")
        finally:
            self._forget(run)
            self.wake()

    def _forget(self, run: Claim) -> None:
        known = self._running.get(run.id)
        if known is not None and known[0].token == run.token:
            del self._running[run.id]

    async def _give_back(self, run: Claim, error: str) -> None:
        """Back to the queue, however long the database is away; with a delay, unless all that is left is to give up."""
        delay = backoff(run.attempts) if run.attempts < run.max_attempts else 0.0
        while True:
            try:
                return await self._database.run(lambda tx: tasks.requeue(tx, run, delay=delay, error=error))
            except RunLost:
                return None
            except TryAgainLater:
                await asyncio.sleep(POLL_SECONDS)

    async def _release(self) -> None:
        """Put back what a stop interrupted, so that it waits for no lease; if that fails, the next start does it."""
        try:
            async with self._database.connection() as conn:
                await tasks.release(conn, self._instance, interrupted=True)
        except TryAgainLater as exc:
            log.warning("worker.release_missed", error=str(exc))

    async def _beat(self) -> None:
        """Renew the leases; stop the runs whose lease was lost; put back what dead workers left."""
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            # Only what was sent may be cancelled: a run claimed during the query is not lost.
            sent = {run.id: run for run, _, _ in self._running.values()}
            try:
                owned = await self._renewed(sent)
                if await self._database.run(tasks.recover):
                    self.wake()
            except TryAgainLater as exc:
                log.warning("worker.beat_missed", error=str(exc))
                continue
            self.cancel(task for task in sent if task not in owned and self._same(sent[task]))

    async def _renewed(self, sent: Mapping[TaskId, Claim]) -> set[TaskId]:
        if not sent:
            return set()
        return await self._database.run(lambda tx: tasks.heartbeat(tx, self._instance, sent.values()))

    def _same(self, run: Claim) -> bool:
        known = self._running.get(run.id)
        return known is not None and known[0].token == run.token

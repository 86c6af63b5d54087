"""The worker: claims tasks for the free slots of its lanes, runs them under a lease, returns unfinished ones.

`can_run` says which kinds of tasks can run on this instance.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import structlog

from gateway.domain.errors import RunLost, TryAgainLater
from gateway.domain.ids import InstanceId, TaskId
from gateway.domain.work.tasks import SLOTS, Claim, EndedRun, Lane, Status, backoff
from gateway.flow.engine import Engine
from gateway.flow.files.sync import FileSync
from gateway.logs.errors import logged
from gateway.store.connection.pool import Connection, Database
from gateway.store.errors import reaching
from gateway.store.transcript import messages, sessions
from gateway.store.work import instances, tasks
from gateway.store.work.instances import Kind

POLL_SECONDS, REST_POLLS = 2.0, 5
"""Between two claims while a task that is due waits. While none does, so many times longer: notifications get lost."""
GIVE_UPS = 3
"""How often giving up may fail before a task ends without a message."""
NOT_GIVEN_UP = "giving up failed"

log = structlog.get_logger(__name__)


class Runner(Protocol):
    """Runs the tasks of one kind."""

    async def run(self, run: Claim) -> None:
        """Do the work and end the task in a transaction of the runner; raises `RunLost` if the run lost it."""

    async def give_up(self, run: Claim) -> None:
        """End a task whose attempts are used up, and tell its person or parent."""


@dataclass(slots=True)
class Worker:
    """Claims and runs tasks in the given lanes, of the kinds that have runners; one instance per process.

    Tells the owner about a task that it ends without a message. `works` says whether the database accepts writes: a
    failure while it doesn't is not counted as an attempt. `able` says which kinds can run here at the moment. `ended`
    is called after each run. `abandoned` runs in the transaction that ends a task without a message, to record that in
    the history of its origin.
    """

    engine: Engine
    runners: Mapping[str, Runner]
    lanes: Collection[Lane]
    tell_owner: Callable[[str], Awaitable[None]]
    works: Callable[[], Awaitable[bool]]
    ended: Callable[[], Awaitable[None]]
    abandoned: Callable[[Connection, TaskId, str], Awaitable[None]]
    able: Callable[[str], bool]
    _draining: bool = field(default=False, init=False)
    _unsure: bool = field(default=False, init=False)
    _limit: int | None = field(default=None, init=False)
    _running: dict[TaskId, tuple[Claim, asyncio.Task[None]]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.engine.signals.cancelled.subscribe(self.cancel)

    def limit(self, runs: int | None) -> None:
        """Claim in a lane only while fewer runs than `runs` are active in it; None: up to the lane's slots."""
        self._limit = runs
        self.engine.signals.tasks.set()

    def cancel(self, lost: Iterable[TaskId]) -> None:
        """Stop these runs if they are ours; their tasks have been cancelled or taken over already.

        A second call, by the command and by the database, must not disturb a run that is cleaning up.
        """
        for id in lost:
            if id in self._running and not (run := self._running[id][1]).cancelling():
                run.cancel()

    @property
    def running(self) -> int:
        """The number of active runs in this process."""
        return len(self._running)

    async def run(self) -> None:
        """Claim and run tasks until cancelled; then cancel the active runs and return their tasks to the queue."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self.engine.signals.tasks.clear()
                    # active runs must not suffer
                    with logged(log, "worker.broken"), logged(log, "worker.waits", TryAgainLater):
                        await self._claim(group)
                    await self._rest()
        finally:
            await self._release()

    async def _rest(self) -> None:
        """Wait for `POLL_SECONDS`, or longer until a task is due: one that is due later notifies nobody."""
        ready = self.engine.signals.tasks
        await ready.wait(POLL_SECONDS)
        if self.engine.database.direct and not ready.is_set():
            with suppress(TryAgainLater):
                await ready.wait(await self.engine.database.read(self._due_in))

    async def _due_in(self, conn: Connection) -> float:
        """No time while another instance lives: its tasks for chats of this one notify nobody."""
        alone = not await instances.work_elsewhere(conn, self.engine.instance)
        return await tasks.due_in(conn, REST_POLLS * POLL_SECONDS) if alone else 0.0

    async def drain(self, seconds: float) -> None:
        """Stop claiming, and wait for the active runs to end, at most `seconds`."""
        self._draining = True
        await self.settle(seconds)

    async def settle(self, seconds: float | None = None) -> None:
        """Wait until the runs that are active now have ended, at most `seconds`; None: without a limit."""
        runs = [task for _, task in self._running.values()]
        if runs:
            await asyncio.wait(runs, timeout=seconds)

    async def _claim(self, group: asyncio.TaskGroup) -> None:
        """Claim due tasks; if the reply to the last claim was lost, first return what it may have claimed."""
        if self._unsure:
            await self.engine.database.run(lambda tx: tasks.release(tx, self.engine.instance, self._running))
        self._unsure = True
        if free := self._free():
            async with self.engine.database.connection() as conn:
                claimed = await tasks.claim(conn, self.engine.instance, free, list(filter(self.able, self.runners)))
            for run in claimed:
                self._running[run.id] = (run, group.create_task(self._run(run), name=f"{run.kind} {run.id}"))
        self._unsure = False

    def _free(self) -> dict[Lane, int]:
        """The number of free slots in each lane that has any."""
        if self._draining:
            return {}
        used = Counter(run.lane for run, _ in self._running.values())
        slots = {lane: SLOTS[lane] if self._limit is None else min(SLOTS[lane], self._limit) for lane in self.lanes}
        return {lane: n - used[lane] for lane, n in slots.items() if n > used[lane]}

    async def _run(self, run: Claim) -> None:
        ids, clock = {"task_id": run.id, "session_id": run.session_id}, self.engine.clock
        began = clock.now()
        with structlog.contextvars.bound_contextvars(**{name: str(id) for name, id in ids.items() if id}):
            await self._guarded(run)
        self.engine.signals.ended.publish(EndedRun(run.id, run.token, began, clock.now()))

    async def _guarded(self, run: Claim) -> None:
        """Run one task; its errors don't reach other runs."""
        try:
            await self._work(run)
        except RunLost as exc:
            log.info("run.lost", reason=str(exc))
        except asyncio.CancelledError:
            log.info("run.cancelled")
        except TryAgainLater as exc:
            log.warning("run.waits", error=str(exc))
            await self._put_back(run, POLL_SECONDS, str(exc), failed=False)
        except Exception as exc:
            error = f"{type(exc).__name__}: {exc}"
            if await self.works():
                log.exception("run.failed", attempts=run.attempts)
                await self._give_back(run, error)
            else:
                log.warning("run.waits", error=error)
                await self._put_back(run, POLL_SECONDS, error, failed=False)
        finally:
            await self._over(run)

    async def _over(self, run: Claim) -> None:
        try:
            with logged(log, "run.not_tidied"):  # the outcome of the run is stored
                await self.ended()
        finally:
            if self._same(run):
                del self._running[run.id]
            self.engine.signals.tasks.set()

    async def _work(self, run: Claim) -> None:
        if run.give_ups > GIVE_UPS:
            await self._abandon(run)
        elif run.exhausted:
            await _retry_outages(lambda: self.runners[run.kind].give_up(run))
        else:
            await self.runners[run.kind].run(run)

    async def _abandon(self, run: Claim) -> None:
        """End a task that can't even be given up, and close the messages that it should have answered."""
        closed = await self.engine.database.run(lambda tx: self._end(tx, run))
        log.error("run.abandoned", kind=run.kind, attempts=run.attempts, closed=closed)
        await self.tell_owner(
            f"A {run.kind} task failed {max(run.attempts - 1, run.alone)} times and was ended; messages left without "
            f"an answer: {closed}. The log says why, under task {run.id}. Write again to start fresh."
        )

    async def _end(self, tx: Connection, run: Claim) -> int:
        if run.session_id is not None:
            await sessions.lock(tx, run.session_id)
        await tasks.finish(tx, run, Status.FAILED, error=NOT_GIVEN_UP)
        await self.abandoned(tx, run.id, NOT_GIVEN_UP)
        return await messages.close(tx, run.session_id) if run.session_id is not None else 0

    async def _give_back(self, run: Claim, error: str) -> None:
        """Return the task to the queue, even after a long outage; without delay if it only has to be ended."""
        over = run.attempts - run.max_attempts
        delay = 0.0 if over in (0, GIVE_UPS) else backoff(over if over > 0 else run.attempts)
        await self._put_back(run, delay, error, failed=True)

    async def _put_back(self, run: Claim, delay: float, error: str, *, failed: bool) -> None:
        back = partial(tasks.requeue, run=run, delay=delay, error=error, failed=failed)

        async def requeue() -> None:
            with reaching():  # the task is queued again when the database accepts this, even if the reply is lost
                await self.engine.database.run(back)

        with suppress(RunLost):
            await _retry_outages(requeue)

    async def _release(self) -> None:
        """Requeue interrupted tasks, before their leases expire; if that fails, the next start does it."""
        with logged(log, "worker.release_missed", TryAgainLater):
            await self.engine.database.run_alone(lambda conn: tasks.release(conn, self.engine.instance))

    async def beat(self) -> None:
        """Renew the leases, stop the runs that lost theirs, and requeue the tasks of dead workers. Never raises."""
        # Only runs that were sent may be cancelled: a run claimed during the query is not lost.
        sent = {run.id: run for run, _ in self._running.values()}
        try:
            owned = await self._renewed(sent)
            if await self.engine.database.run(tasks.recover):
                self.engine.signals.tasks.set()
        except TryAgainLater as exc:
            log.warning("worker.beat_missed", error=str(exc))
        except Exception:
            log.exception("worker.beat_missed")
        else:
            self.cancel(task for task in sent if task not in owned and self._same(sent[task]))

    async def _renewed(self, sent: Mapping[TaskId, Claim]) -> set[TaskId]:
        if not sent:
            return set()
        return await self.engine.database.run(lambda tx: tasks.heartbeat(tx, self.engine.instance, sent.values()))

    def _same(self, run: Claim) -> bool:
        known = self._running.get(run.id)
        return known is not None and known[0].token == run.token


async def _retry_outages(work: Callable[[], Awaitable[None]]) -> None:
    """Retry `work` while the database is unavailable, which isn't a failed attempt. Raises `RunLost`."""
    while True:
        try:
            return await work()
        except RunLost:
            raise
        except TryAgainLater:
            await asyncio.sleep(POLL_SECONDS)


POLL_WORKPLACE_SECONDS = 20.0
GONE_SECONDS = 600.0
"""How long the machine with the workspace may be unavailable before a gateway works in its own folder."""
WORKSPACE = "workspace"
FILELESS_KINDS = frozenset({"consolidate", "summarise"})
"""Kinds of tasks that need no files."""
AGENT_KINDS = frozenset({"agent", "heartbeat"})
"""Kinds that run agents without a chat that waits for them."""
CHANNEL_KINDS = frozenset({"ingest"})


@dataclass(slots=True)
class Workplace:
    """The place of the workspace.

    `home` is the instance whose data folder this is: a worker's own, or that of the gateway that it runs beside.
    """

    database: Database
    kind: Kind
    home: InstanceId
    elsewhere: str | None = field(default=None, init=False)
    """The machine that has the workspace: "" for this one, None if no machine has it yet."""

    async def look(self) -> None:
        """Look up where the workspace is; a gateway takes a workspace without a machine. An outage changes nothing."""
        try:
            before, self.elsewhere = self.elsewhere, await self.database.run(self._where)
        except TryAgainLater:
            return
        if self.elsewhere != before and not self.here:
            effect = "tasks of agents wait for it; docs/deploy.md says how machines share one"
            log.warning("workspace.elsewhere", machine=self.elsewhere or "none yet", effect=effect)

    @property
    def here(self) -> bool:
        """Whether this instance has the workspace."""
        return self.elsewhere == ""

    async def _where(self, tx: Connection) -> str | None:
        if self.kind == "gateway":
            return await instances.settle(tx, WORKSPACE, self.home, gone=GONE_SECONDS)
        return await instances.home(tx, WORKSPACE, self.home)


def can_run(workplace: Workplace, file_sync: FileSync, kind: str) -> bool:
    """Whether a task of this kind can run on this instance. A gateway always answers its own chats.

    With shared files, tasks of agents run on every instance.
    """
    has_files = kind in AGENT_KINDS | {"transcribe"} and file_sync.shared
    if workplace.kind == "worker":
        return kind in FILELESS_KINDS or has_files or (workplace.here and kind not in CHANNEL_KINDS)
    return workplace.here or has_files or kind not in AGENT_KINDS

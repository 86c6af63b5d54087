"""The worker: claims what the slots of its lanes allow, runs it under a lease, gives back what it cannot finish.

`TaskPlacement` says which kinds of tasks can run on this instance."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from gateway.domain.errors import RunLost, TryAgainLater
from gateway.domain.ids import InstanceId, TaskId
from gateway.domain.work.tasks import SLOTS, Claim, Lane, Status, backoff
from gateway.flow.files.sync import FileSync
from gateway.flow.signals import Signals
from gateway.store.connection.pool import Connection, Database
from gateway.store.errors import reaching
from gateway.store.transcript import messages, sessions
from gateway.store.work import instances, tasks
from gateway.store.work.instances import Kind

POLL_SECONDS = 2.0
GIVE_UPS = 3
"""How often giving up may fail before a task is ended without a message."""
NOT_GIVEN_UP = "giving up failed"

log = structlog.get_logger(__name__)


class Runner(Protocol):
    """Runs the tasks of one kind."""

    async def run(self, run: Claim) -> None:
        """Do the work and end the task through its own transaction; raises `RunLost` when it no longer owns it."""
        ...

    async def give_up(self, run: Claim) -> None:
        """The attempts are used up: end the task, and tell its person or parent."""
        ...


@dataclass(slots=True)
class Worker:
    """One per process; it claims in the lanes given, of the kinds it has runners for.

    The owner is told of a task that ended in silence. `works` says whether the database takes what others write: an
    attempt that fails while it does not is none. `able` says which kinds can run here at the moment. `ended` is called
    after each run; `abandoned`, in the transaction that ends a task in silence, records that where its origin keeps a
    history.
    """

    database: Database
    instance: InstanceId
    runners: Mapping[str, Runner]
    lanes: Collection[Lane]
    signals: Signals
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
        self.signals.cancelled.subscribe(self.cancel)

    def limit(self, runs: int | None) -> None:
        """Claim only while fewer runs than that are under way in a lane; None: as many as a lane has slots."""
        self._limit = runs
        self.signals.tasks.set()

    def cancel(self, lost: Iterable[TaskId]) -> None:
        """Stop these runs if they are ours; their tasks have been cancelled or taken over already.

        Being told twice, by the command and by the database, must not disturb a run that is cleaning up.
        """
        for id in lost:
            if id in self._running and not (run := self._running[id][1]).cancelling():
                run.cancel()

    @property
    def running(self) -> int:
        """How many runs are under way in this process."""
        return len(self._running)

    async def run(self) -> None:
        """Claim and run until cancelled; then the runs under way are cancelled and given back."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self.signals.tasks.clear()
                    try:
                        await self._claim(group)
                    except TryAgainLater as exc:
                        log.warning("worker.waits", error=str(exc))
                    except Exception:  # no run under way may suffer
                        log.exception("worker.broken")
                    await self.signals.tasks.wait(POLL_SECONDS)
        finally:
            await self._release()

    async def drain(self, seconds: float) -> None:
        """Claim nothing more, and let the runs under way come to their end, for that long at most."""
        self._draining = True
        await self.settle(seconds)

    async def settle(self, seconds: float | None = None) -> None:
        """Wait for the runs that are under way now."""
        runs = [task for _, task in self._running.values()]
        if runs:
            await asyncio.wait(runs, timeout=seconds)

    async def _claim(self, group: asyncio.TaskGroup) -> None:
        """Take what is due; after a claim whose reply was lost, first give back what it may have taken."""
        if self._unsure:
            await self.database.run(lambda tx: tasks.disown(tx, self.instance, list(self._running)))
        self._unsure = True
        if free := self._free():
            async with self.database.connection() as conn:
                claimed = await tasks.claim(conn, self.instance, free, list(filter(self.able, self.runners)))
            for run in claimed:
                self._running[run.id] = (run, group.create_task(self._run(run), name=f"{run.kind} {run.id}"))
        self._unsure = False

    def _free(self) -> dict[Lane, int]:
        """The lanes in which more may run, and how many."""
        if self._draining:
            return {}
        used = Counter(run.lane for run, _ in self._running.values())
        slots = {lane: SLOTS[lane] if self._limit is None else min(SLOTS[lane], self._limit) for lane in self.lanes}
        return {lane: n - used[lane] for lane, n in slots.items() if n > used[lane]}

    async def _run(self, run: Claim) -> None:
        ids = {"task_id": run.id, "session_id": run.session_id}
        with structlog.contextvars.bound_contextvars(**{name: str(id) for name, id in ids.items() if id}):
            await self._guarded(run)

    async def _guarded(self, run: Claim) -> None:
        """One run; nothing that goes wrong in it reaches another."""
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
            await self.ended()
        except Exception:  # what the run came to is stored
            log.exception("run.not_tidied")
        finally:
            if self._same(run):
                del self._running[run.id]
            self.signals.tasks.set()

    async def _work(self, run: Claim) -> None:
        if run.give_ups > GIVE_UPS:
            await self._abandon(run)
        elif run.exhausted:
            await _retry_outages(lambda: self.runners[run.kind].give_up(run))
        else:
            await self.runners[run.kind].run(run)

    async def _abandon(self, run: Claim) -> None:
        """End a task that can't even be given up, and close the messages that it should have answered."""
        closed = await self.database.run(lambda tx: self._end(tx, run))
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
        """Back to the queue, however long the database is away; with a delay, unless all that is left is to end it."""
        over = run.attempts - run.max_attempts
        delay = 0.0 if over in (0, GIVE_UPS) else backoff(over if over > 0 else run.attempts)
        await self._put_back(run, delay, error, failed=True)

    async def _put_back(self, run: Claim, delay: float, error: str, *, failed: bool) -> None:
        async def requeue() -> None:
            with reaching():  # it is in the queue again once the database takes it, whatever it says until then
                await self.database.run(lambda tx: tasks.requeue(tx, run, delay=delay, error=error, failed=failed))

        with suppress(RunLost):
            await _retry_outages(requeue)

    async def _release(self) -> None:
        """Put back what a stop interrupted, so that it waits for no lease; if that fails, the next start does it."""
        try:
            async with self.database.connection() as conn:
                await tasks.release(conn, self.instance)
        except TryAgainLater as exc:
            log.warning("worker.release_missed", error=str(exc))

    async def beat(self) -> None:
        """Renew the leases; stop the runs whose lease was lost; put back what dead workers left. Never raises."""
        # Only what was sent may be cancelled: a run claimed during the query is not lost.
        sent = {run.id: run for run, _ in self._running.values()}
        try:
            owned = await self._renewed(sent)
            if await self.database.run(tasks.recover):
                self.signals.tasks.set()
        except TryAgainLater as exc:
            log.warning("worker.beat_missed", error=str(exc))
        except Exception:
            log.exception("worker.beat_missed")
        else:
            self.cancel(task for task in sent if task not in owned and self._same(sent[task]))

    async def _renewed(self, sent: Mapping[TaskId, Claim]) -> set[TaskId]:
        if not sent:
            return set()
        return await self.database.run(lambda tx: tasks.heartbeat(tx, self.instance, sent.values()))

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
"""Kinds that run agents and that nobody waits for in a chat."""
CHANNEL_KINDS = frozenset({"ingest"})


@dataclass(slots=True)
class Workplace:
    """Where the workspace is. `home` is the instance whose data folder this is: a worker's own, or that of the gateway
    that it runs beside.
    """

    database: Database
    kind: Kind
    home: InstanceId
    elsewhere: str | None = field(default=None, init=False)
    """The machine that has the workspace: "" for this one, None before there is one."""

    async def look(self) -> None:
        """Ask where the workspace is; a gateway takes it if it is nowhere. During an outage it stays where it was."""
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


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """While an object store keeps the workspace the same everywhere, agents' tasks run on every instance."""

    workplace: Workplace
    file_sync: FileSync

    def able(self, kind: str) -> bool:
        """Whether a task of this kind can run here. A gateway answers its own chats in any case."""
        has_files = kind in AGENT_KINDS and self.file_sync.shared
        if self.workplace.kind == "worker":
            return kind in FILELESS_KINDS or has_files or (self.workplace.here and kind not in CHANNEL_KINDS)
        return self.workplace.here or has_files or kind not in AGENT_KINDS

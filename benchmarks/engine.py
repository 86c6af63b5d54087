"""`python -m benchmarks.engine`: the engine of tasks alone, with runs that do nothing: what queueing itself costs.

The worker, the statements, the listener's wake-ups and the event loop are real, on an embedded Postgres of their own.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter
from uuid import uuid4

import structlog
import uvloop

from benchmarks.statistics import p95
from gateway.background.worker import Worker
from gateway.domain.ids import PrincipalId, TaskId
from gateway.domain.principals import Role
from gateway.domain.work.tasks import Claim, Lane, Status
from gateway.store.connection.pool import Connection, Database
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.migrate import migrate
from gateway.store.people import principals
from gateway.store.work import schedule_runs, tasks
from tests.fakes.engine import engine_on

KIND = "bench"
STARTS, TASKS, WIDE, TREES = 200, 4_000, 50, 10
WIDE_ATTEMPTS = 3
"""One that may be tried more often has children to make."""
DRAINED = """select not exists (select from tasks where status = 'pending')
               and not exists (select from tasks where status = 'running')"""


@dataclass
class Run:
    """Ends its task at once; one with `wide` in its input makes so many children first, and joins them."""

    database: Database
    started: dict[TaskId, float] = field(default_factory=dict)

    async def run(self, run: Claim) -> None:
        """What has nothing to store ends by one statement, what has by a transaction, as real kinds do."""
        self.started[run.id] = perf_counter()
        if run.max_attempts > WIDE_ATTEMPTS:
            await self.database.run(lambda tx: self._split(tx, run))
            return
        async with self.database.connection() as conn:
            await tasks.finish(conn, run, Status.COMPLETED)

    async def give_up(self, run: Claim) -> None:
        """Never needed."""

    async def _split(self, tx: Connection, run: Claim) -> None:
        wide = (await tasks.payload(tx, run.id)).get("wide", 0)
        made = await tx.fetchval("select count(*) from tasks where parent_id = $1", run.id) if wide else 0
        if not isinstance(wide, int) or made == wide:
            await tasks.finish(tx, run, Status.COMPLETED)
            return
        await tasks.hold(tx, run)
        for _ in range(wide):
            await tasks.create(tx, run.principal_id, KIND, Lane.AGENTS, parent=run.id)
        await tasks.suspend(tx, run, Status.PENDING_SUBTASK)


@dataclass(frozen=True, slots=True)
class Figures:
    """Milliseconds, tasks per second with one and two processes, seconds, milliseconds."""

    start_p50_ms: float
    start_p95_ms: float
    drain: float
    drain_two: float
    join_s: float
    cancel_ms: float


async def _log(text: str) -> None:
    structlog.get_logger().warning(text)


async def _works() -> bool:
    return True


async def _end() -> None:
    """Nothing follows a run."""


@asynccontextmanager
async def working(database: Database) -> AsyncIterator[tuple[Worker, Run]]:
    """One process with its worker."""
    run = Run(database)
    worker = Worker(
        engine_on(database),
        {KIND: run},
        (Lane.AGENTS,),
        tell_owner=_log,
        works=_works,
        ended=_end,
        abandoned=schedule_runs.mark_failed,
        able=lambda _kind: True,
    )
    task = asyncio.create_task(worker.run())
    try:
        yield worker, run
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def measure(database: Database, dsn: str) -> Figures:
    """About a minute."""
    async with database.transaction() as tx:
        owner = await principals.add(tx, Role.OWNER, "Ada", [])
    async with working(database) as (worker, run):
        starts = [await _start(database, worker, run, owner) for _ in range(STARTS)]
        joins = [await _join(database, worker, owner) for _ in range(TREES)]
    one = await _drain(database, owner, None)
    two = await _drain(database, owner, dsn)
    cancels = [await _cancel(database, owner) for _ in range(TREES)]
    return Figures(median(starts) * 1000, p95(starts) * 1000, one, two, median(joins), median(cancels) * 1000)


async def _start(database: Database, worker: Worker, run: Run, owner: PrincipalId) -> float:
    task = TaskId(uuid4())
    began = perf_counter()
    await database.run(lambda tx: tasks.create(tx, owner, KIND, Lane.AGENTS, id=task))
    worker.engine.signals.tasks.set()
    await _over(database, task)
    return run.started[task] - began


async def _join(database: Database, worker: Worker, owner: PrincipalId) -> float:
    began = perf_counter()
    task = await _tree(database, owner)
    worker.engine.signals.tasks.set()
    await _over(database, task)
    return perf_counter() - began


async def _drain(database: Database, owner: PrincipalId, dsn: str | None) -> float:
    """Tasks per second until none is left; with a `dsn` a second process, which has started before, helps."""
    async with database.transaction() as tx:
        await tx.execute(
            """insert into tasks (id, master_id, kind, lane, principal_id, max_attempts)
               select id, id, $1, 'agents', $2, 3 from (
                 select gen_random_uuid() as id from generate_series(1, $3)) as new""",
            KIND,
            owner,
            TASKS,
        )
        await tx.execute("update tasks set run_at = now() + interval '1 hour' where status = 'pending'")
    arguments = ("-m", "benchmarks.engine", "--worker", dsn or "")
    other = await asyncio.create_subprocess_exec(sys.executable, *arguments) if dsn else None
    await asyncio.sleep(3 if other else 0)
    try:
        async with working(database) as (worker, _):
            began = perf_counter()
            async with database.connection() as conn:
                await conn.execute("update tasks set run_at = now() where status = 'pending'")
            worker.engine.signals.tasks.set()
            await _until(database, DRAINED, 0.02)
            return TASKS / (perf_counter() - began)
    finally:
        if other is not None:
            other.kill()
            await other.wait()


async def _cancel(database: Database, owner: PrincipalId) -> float:
    """Of a tree of 51."""
    task = await _tree(database, owner)
    async with database.transaction() as tx:
        for _ in range(WIDE):
            await tasks.create(tx, owner, KIND, Lane.AGENTS, parent=task)
    began = perf_counter()
    await database.run(lambda tx: tasks.cancel(tx, task))
    return perf_counter() - began


async def _tree(database: Database, owner: PrincipalId) -> TaskId:
    made = await database.run(
        lambda tx: tasks.create(tx, owner, KIND, Lane.AGENTS, payload={"wide": WIDE}, max_attempts=5)
    )
    assert made is not None, "nothing else has its id"
    return made


async def _over(database: Database, task: TaskId) -> None:
    await _until(database, "select status = 'completed' from tasks where id = $1", 0.002, task)


async def _until(database: Database, question: str, every: float, *arguments: object) -> None:
    async with asyncio.timeout(120), database.connection() as conn:
        for _ in count():
            if await conn.fetchval(question, *arguments):
                return
            await asyncio.sleep(every)


async def run() -> Figures:
    with tempfile.TemporaryDirectory(prefix="supaclaw-bench-") as home:
        postgres = EmbeddedPostgres(Path(home))
        dsn = await postgres.start()
        try:
            async with await Database.connect(dsn) as database:
                await migrate(database)
                return await measure(database, dsn)
        finally:
            await postgres.stop()


async def help_out(dsn: str) -> None:
    """The second process: works until it is killed."""
    async with await Database.connect(dsn) as database, working(database) as (worker, _):
        while True:
            worker.engine.signals.tasks.set()
            await asyncio.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    if dsn := parser.parse_args().worker:
        uvloop.run(help_out(dsn))
        return
    found = uvloop.run(run())
    print(f"create → start   p50 {found.start_p50_ms:.1f} ms, p95 {found.start_p95_ms:.1f} ms   (≤ 15 / 40 ms)")
    print(f"drain            {found.drain:,.0f}/s, with two processes {found.drain_two:,.0f}/s   (≥ 800 / 1,500)")
    print(f"fan-out of {WIDE}    joined after {found.join_s:.2f} s   (≤ 1 s)")
    print(f"cancel of {WIDE + 1}     {found.cancel_ms:.0f} ms   (≤ 50 ms)")


if __name__ == "__main__":
    main()

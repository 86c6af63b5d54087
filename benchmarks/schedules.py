"""`python -m benchmarks.schedules`: what a look at ten thousand schedules costs, and the hour that all of them are due.

The scheduler is the real one, in this process, on an embedded Postgres of its own; what it queues nobody runs.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from types import SimpleNamespace
from typing import TypeVar

from benchmarks.statistics import p95
from gateway.background.upkeep.schedules import BATCH, Scheduler
from gateway.domain.ids import PrincipalId
from gateway.domain.principals import Role
from gateway.store.connection.pool import Connection, Database
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.migrate import migrate
from gateway.store.people import principals
from tests.fakes.engine import engine_on

SCHEDULES = 10_000
LOOKS = 200
DUE = (0, 1, BATCH)
LAG_EVERY = 0.002
Result = TypeVar("Result")


class TimedDatabase(Database):
    """Notes how long each transaction took, in milliseconds."""

    took: list[float]

    async def run(self, work: Callable[[Connection], Awaitable[Result]]) -> Result:
        """The same, by the clock."""
        began = perf_counter()
        try:
            return await super().run(work)
        finally:
            self.took.append((perf_counter() - began) * 1000)


@dataclass(frozen=True, slots=True)
class Look:
    """One look at the table, in milliseconds, when so many are due."""

    due: int
    p50_ms: float
    p95_ms: float


@dataclass(frozen=True, slots=True)
class AllAtOnce:
    """Every schedule is due at the same instant; `lag` is by how much whoever else was there had to wait.

    `cpu_ms` is what a batch takes of this process, Postgres apart.
    """

    queued: int
    total_s: float
    batch_p50_ms: float
    longest_batch_ms: float
    cpu_ms: float
    lag_p95_ms: float
    longest_lag_ms: float


@dataclass
class Lag:
    """How late the event loop is, in milliseconds."""

    late: list[float] = field(default_factory=list)

    @asynccontextmanager
    async def measured(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def _watch(self) -> None:
        while True:
            began = perf_counter()
            await asyncio.sleep(LAG_EVERY)
            self.late.append((perf_counter() - began - LAG_EVERY) * 1000)


async def measure(database: TimedDatabase) -> tuple[list[Look], AllAtOnce]:
    """About a minute."""
    await _fill(database)
    scheduler = Scheduler(engine_on(database, people=SimpleNamespace(lets_in=_everybody)))
    await _all_due(database, SCHEDULES)
    await scheduler.tick()  # each has had a run before
    looks = [await _look(database, scheduler, due) for due in DUE]
    return looks, await _all_at_once(database, scheduler)


async def _look(database: TimedDatabase, scheduler: Scheduler, due: int) -> Look:
    took: list[float] = []
    for _ in range(LOOKS):
        await _all_due(database, due)
        began = perf_counter()
        await scheduler.look()
        took.append((perf_counter() - began) * 1000)
    return Look(due, median(took), p95(took))


async def _all_at_once(database: TimedDatabase, scheduler: Scheduler) -> AllAtOnce:
    await _all_due(database, SCHEDULES)
    lag = Lag()
    database.took.clear()
    began, cpu = perf_counter(), process_time()
    async with lag.measured():
        queued = await scheduler.tick()
    total, cpu = perf_counter() - began, process_time() - cpu
    took = database.took
    return AllAtOnce(queued, total, median(took), max(took), cpu / len(took) * 1000, p95(lag.late), max(lag.late))


async def _fill(database: Database) -> None:
    """At every minute of a day, in four zones."""
    async with database.transaction() as tx:
        owner = await principals.add(tx, Role.OWNER, "Ada", [])
        await tx.execute(
            """insert into schedules (principal_id, name, prompt, cron, zone, origin, next_run_at)
               select $1, 'schedule ' || n, repeat('Look at it. ', 20), n % 60 || ' ' || n / 60 % 24 || ' * * *',
                      (array['Europe/Berlin', 'America/New_York', 'Asia/Tokyo', 'UTC'])[1 + n % 4], 'telegram',
                      now() + interval '1 day'
               from generate_series(1, $2) n""",
            owner,
            SCHEDULES,
        )


async def _all_due(database: Database, number: int) -> None:
    """So many, anywhere in the table, are due since a second; what ran is over."""
    async with database.transaction() as tx:
        await tx.execute("update tasks set status = 'completed' where status = 'pending'")
        await tx.execute(
            """update schedules set next_run_at = now() - interval '1 second'
               where id in (select id from schedules order by random() limit $1)""",
            number,
        )


async def _everybody(_tx: Connection, _principal: PrincipalId) -> bool:
    return True


@asynccontextmanager
async def _fresh_database(home: Path) -> AsyncIterator[TimedDatabase]:
    postgres = EmbeddedPostgres(home)
    dsn = await postgres.start()
    try:
        async with await TimedDatabase.connect(dsn) as database:
            database.took = []
            await migrate(database)
            yield database
    finally:
        await postgres.stop()


async def run() -> tuple[list[Look], AllAtOnce]:
    with tempfile.TemporaryDirectory(prefix="supaclaw-bench-") as home:
        async with _fresh_database(Path(home)) as database:
            return await measure(database)


def main() -> None:
    looks, burst = asyncio.run(run())
    print(f"{SCHEDULES:,} schedules, a look when so many are due:")
    for look in looks:
        print(f"  {look.due:2}: p50 {look.p50_ms:.1f} ms, p95 {look.p95_ms:.1f} ms")
    print(f"all due at once: {burst.queued:,} queued in {burst.total_s:.1f} s,")
    print(f"  a batch: p50 {burst.batch_p50_ms:.1f} ms, the longest {burst.longest_batch_ms:.1f} ms,")
    print(f"  of which {burst.cpu_ms:.1f} ms CPU of the gateway,")
    print(f"  the event loop meanwhile: p95 {burst.lag_p95_ms:.1f} ms late, at most {burst.longest_lag_ms:.1f} ms")


if __name__ == "__main__":
    main()

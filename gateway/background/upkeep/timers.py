"""Timers: loops that go on whatever goes wrong in them, and the table of named jobs.

APScheduler keeps the dates of the table and wakes a job; the job knows what is due."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import structlog

from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.time import Clock
from gateway.domain.work.tasks import backoff
from gateway.flow.signals import Wakeup

if TYPE_CHECKING:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler


STEADY_SECONDS = 60.0

log = structlog.get_logger(__name__)


async def keep_running(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Do it until it returns; a defect in it, or an outage, is logged, and it starts again after 1, 3, 7 … 60 seconds.

    What went well for a minute starts again after one.
    """
    failures = 0
    while True:
        began = time.monotonic()
        try:
            return await work()
        except Exception as exc:
            failures = 1 if time.monotonic() - began > STEADY_SECONDS else failures + 1
            if isinstance(exc, TryAgainLater):
                log.warning("background.waits", work=name, error=str(exc), again_in=backoff(failures))
            else:
                log.exception("background.broken", work=name, again_in=backoff(failures))
            await asyncio.sleep(backoff(failures))


@dataclass(frozen=True, slots=True)
class Periodic:
    """Work that is done at once and then every so many seconds by the monotonic clock, which can't be set."""

    name: str
    every: float
    work: Callable[[], Awaitable[None]]

    async def run(self) -> None:
        """Until cancelled, or until it fails."""
        while True:
            await self.work()
            await asyncio.sleep(self.every)


CHECK_SECONDS = 20.0
"""By the monotonic clock each job looks again by then and is armed anew, whatever became of its date: so a clock that
was set, a machine that slept, an edited configuration and a timer that is gone do no harm."""

Look: TypeAlias = Callable[[], Awaitable[datetime | None]]
"""Does what is due now, if anything; returns when something is due next, None while nothing is."""


Result = TypeVar("Result")
Loops: TypeAlias = Mapping[str, Callable[[], Awaitable[None]]]
"""What runs as long as the process, by the names that logs and tasks have."""


def only_if(
    condition: Callable[[], bool], work: Callable[[], Awaitable[Result]]
) -> Callable[[], Awaitable[Result | None]]:
    """`work` if the condition holds at that moment; else None."""

    async def checked() -> Result | None:
        return await work() if condition() else None

    return checked


class JobTable:
    """Wakes each job at the date that it named last; none waits for another, and none runs twice at once.

    `signals` wake jobs before that date, by the job's name.
    """

    def __init__(self, looks: Mapping[str, Look], clock: Clock, signals: Mapping[str, Wakeup]) -> None:
        self._looks = looks
        self._clock = clock
        self._awake = {name: signals.get(name) or Wakeup() for name in looks}
        self._timers: AsyncIOScheduler | None = None

    @property
    def dates(self) -> Mapping[str, datetime | None]:
        """When each job is due; None while it runs, or if it isn't due at all."""
        armed = {job.id: job.next_run_time for job in self._timers.get_jobs()} if self._timers else {}
        return {name: armed.get(name) for name in self._looks}

    async def run(self) -> None:
        """Until cancelled."""
        module = await asyncio.to_thread(import_module, "apscheduler.schedulers.asyncio")
        self._timers = timers = module.AsyncIOScheduler(timezone=UTC)
        timers.start()
        try:
            async with asyncio.TaskGroup() as group:
                for name in self._looks:
                    group.create_task(self._keep(name, timers), name=f"job {name}")
        finally:
            timers.shutdown(wait=False)

    async def _keep(self, name: str, timers: "AsyncIOScheduler") -> None:
        """Run one job forever; a failed one is retried, later and later."""
        failures = 0
        while True:
            self._awake[name].clear()
            try:
                due = await self._looks[name]()
                failures = 0
            except Exception as exc:
                failures += 1
                due = self._clock.now() + timedelta(seconds=backoff(failures))
                log.warning("job.failed", job=name, error=str(exc), exc_info=not isinstance(exc, SupaclawError))
            self._arm(name, due, timers)
            await self._awake[name].wait(CHECK_SECONDS)

    def _arm(self, name: str, due: datetime | None, timers: "AsyncIOScheduler") -> None:
        """Set the job's date, or remove it. A date that has passed is late, never missed."""
        from apscheduler.triggers.date import DateTrigger

        if due is not None:
            options = {"id": name, "name": name, "misfire_grace_time": None, "replace_existing": True}
            timers.add_job(self._fire, DateTrigger(due), [name], **options)
        elif timers.get_job(name):
            timers.remove_job(name)

    async def _fire(self, name: str) -> None:
        self._awake[name].set()


@dataclass(slots=True)
class Interval:
    """A job that is done every so often by the monotonic clock, first at `due` on it; `every` None: not for now."""

    every: Callable[[], timedelta | None]
    work: Callable[[], Awaitable[None]]
    clock: Clock
    due: float = 0.0

    async def look(self) -> datetime | None:
        """Do the work if it is due; returns when it is due next. Work that raises is still due."""
        if (every := self.every()) is None:
            return None
        self.due = min(self.due, self.clock.monotonic() + every.total_seconds())
        if self.clock.monotonic() >= self.due:
            await self.work()
            self.due = self.clock.monotonic() + every.total_seconds()
        return self.clock.now() + timedelta(seconds=self.due - self.clock.monotonic())

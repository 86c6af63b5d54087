"""Timers: loops that restart after every error, and the table of named jobs.

APScheduler keeps the dates of the table and wakes a job; the job knows what is due.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import structlog

from gateway.domain.errors import SupaclawError, TryAgainLater
from gateway.domain.health import JobRun, JobState
from gateway.domain.time import Clock
from gateway.domain.work.tasks import backoff
from gateway.flow.signals import Wakeup

if TYPE_CHECKING:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler


STEADY_SECONDS = 60.0

log = structlog.get_logger(__name__)


async def keep_running(name: str, work: Callable[[], Awaitable[None]]) -> None:
    """Run `work` until it returns; log each error and restart after 1, 3, 7 … 60 seconds.

    After it has run for a minute, the delays start at one second again.
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
    """Work that runs at once and then every `every` seconds by the monotonic clock, which can't be set."""

    name: str
    every: float
    work: Callable[[], Awaitable[None]]

    async def run(self) -> None:
        """Run until cancelled or until the work raises."""
        while True:
            await self.work()
            await asyncio.sleep(self.every)


CHECK_SECONDS = 20.0
"""Each job looks again after this time by the monotonic clock, whatever became of its date.

Therefore a clock that was set, a machine that slept, an edited configuration or a lost timer does no harm.
"""

SAME_DATE = timedelta(seconds=1)
"""Closer dates count as one: a job that is woken too early looks and is armed again, and arming costs more."""

Look: TypeAlias = Callable[[], Awaitable[datetime | None]]
"""Does the work that is due now; returns when more is due, None if nothing is."""


Result = TypeVar("Result")
Loops: TypeAlias = Mapping[str, Callable[[], Awaitable[None]]]
"""Work that runs as long as the process, by the names in logs and of tasks."""


def only_if(
    condition: Callable[[], bool], work: Callable[[], Awaitable[Result]]
) -> Callable[[], Awaitable[Result | None]]:
    """`work`, which runs only if the condition holds at that moment and returns None otherwise."""

    async def checked() -> Result | None:
        return await work() if condition() else None

    return checked


class JobTable:
    """Wakes each job at the date that it returned last; jobs don't wait for each other, and none runs twice at once.

    `signals` wake jobs before that date, by the job's name.
    """

    def __init__(self, looks: Mapping[str, Look], clock: Clock, signals: Mapping[str, Wakeup]) -> None:
        self._looks = looks
        self._clock = clock
        self._awake = {name: signals.get(name) or Wakeup() for name in looks}
        self._timers: AsyncIOScheduler | None = None
        self._last: dict[str, JobRun] = {}

    @property
    def jobs(self) -> Mapping[str, JobState]:
        """Each job with its date and its last run."""
        return {name: JobState(due, self._last.get(name)) for name, due in self.dates.items()}

    @property
    def dates(self) -> Mapping[str, datetime | None]:
        """When each job is due; None while it runs, or if it has no date."""
        armed = {job.id: job.next_run_time for job in self._timers.get_jobs()} if self._timers else {}
        return {name: armed.get(name) for name in self._looks}

    async def run(self) -> None:
        """Run the jobs until cancelled."""
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
        """Run one job forever; a failed one is retried, with growing delays."""
        failures = 0
        due: datetime | None = None
        while True:
            self._awake[name].clear()
            began, was_due, error = self._clock.now(), due, ""
            try:
                due = await self._looks[name]()
                failures = 0
            except Exception as exc:
                failures, error = failures + 1, str(exc)
                due = self._clock.now() + timedelta(seconds=backoff(failures))
                log.warning("job.failed", job=name, error=error, exc_info=not isinstance(exc, SupaclawError))
            if error or was_due is None or was_due <= began:
                self._last[name] = JobRun(began, (self._clock.now() - began).total_seconds(), error)
            self._arm(name, due, timers)
            await self._awake[name].wait(CHECK_SECONDS)

    def _arm(self, name: str, due: datetime | None, timers: "AsyncIOScheduler") -> None:
        """Set or remove the job's date. A date in the past counts as late, never as missed."""
        from apscheduler.triggers.date import DateTrigger

        job = timers.get_job(name)
        if due and job and abs(job.next_run_time - due) < SAME_DATE:
            return
        if due is not None:
            options = {"id": name, "name": name, "misfire_grace_time": None, "replace_existing": True}
            timers.add_job(self._fire, DateTrigger(due), [name], **options)
        elif job:
            timers.remove_job(name)

    async def _fire(self, name: str) -> None:
        self._awake[name].set()


@dataclass(slots=True)
class Interval:
    """A job that runs at an interval by the monotonic clock, first at `due`; `every` returns None while it is off."""

    every: Callable[[], timedelta | None]
    work: Callable[[], Awaitable[None]]
    clock: Clock
    due: float = 0.0

    async def look(self) -> datetime | None:
        """Do the work if it is due; return when it is due next. Work that raises stays due."""
        if (every := self.every()) is None:
            return None
        self.due = min(self.due, self.clock.monotonic() + every.total_seconds())
        if self.clock.monotonic() >= self.due:
            await self.work()
            self.due = self.clock.monotonic() + every.total_seconds()
        return self.clock.now() + timedelta(seconds=self.due - self.clock.monotonic())

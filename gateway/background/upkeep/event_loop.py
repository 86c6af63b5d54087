"""Watches the event loop: measures its delays; a thread records what blocks it and ends a process that hangs."""

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import ceil
from pathlib import Path
from tempfile import TemporaryFile
from traceback import walk_stack
from types import FrameType
from typing import NoReturn

import structlog

from gateway.background.upkeep.timers import Periodic
from gateway.config.machine import boot_seconds
from gateway.domain.health import LoopLag

LOOK_SECONDS = 1.0
"""Often enough to notice real delays; every look wakes the machine."""
HUNG_LOOKS = 60
"""Looks in a row without a tick between them. The thread doesn't look while the process or the machine sleeps."""
TELL_SECONDS = 5.0
"""How long a log entry may take, since logging may be what hangs."""
_CALLERS = 3
_ROOT = Path(__file__).parents[3]
_OURS = tuple(f"{_ROOT / package}{os.sep}" for package in ("gateway", "channels"))

log = structlog.get_logger(__name__)


class LoopWatchdog:
    """Records what blocks the loop, when no tick arrives for `patience` seconds.

    After a minute it ends the process, so that its supervisor restarts it. Code that holds the interpreter's lock
    blocks this thread too; then the thread records the code that runs next.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._ticked_at = time.monotonic()
        self._missed = 0
        self._stop = threading.Event()
        self.seen: str | None = None

    def tick(self) -> None:
        """Record that the loop runs."""
        self.seen = None
        self._missed = 0
        self._ticked_at = time.monotonic()

    @contextmanager
    def watching(self) -> Iterator["LoopWatchdog"]:
        """Watch the running loop from a thread that ends with the block."""
        loop, ident = asyncio.get_running_loop(), threading.get_ident()
        threading.Thread(target=self._look, args=(loop, ident), name="watchdog", daemon=True).start()
        try:
            yield self
        finally:
            self._stop.set()

    def _look(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._missed += 1
            if self._missed > HUNG_LOOKS:
                _end_process()
            if self.seen is None and time.monotonic() - self._ticked_at > self._patience:
                self.seen = _account(asyncio.current_task(loop), sys._current_frames().get(ident))


def _end_process() -> NoReturn:
    """End the process at once, without loss of data: hanging code can't be stopped in an orderly way."""
    teller = threading.Thread(target=_log_hang, name="watchdog log", daemon=True)
    teller.start()
    teller.join(TELL_SECONDS)
    os._exit(os.EX_SOFTWARE)


def _log_hang() -> None:
    with TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        log.critical("gateway.hung", hint="the event loop stood still for a minute", exception=file.read())


def _account(task: "asyncio.Task[object] | None", frame: FrameType | None) -> str:
    """The task and its position: the innermost call, then our calls that led there; names and lines only."""
    stack = list(walk_stack(frame)) if frame else []
    ours = (each for each in stack[1:] if each[0].f_code.co_filename.startswith(_OURS))
    calls = [_call(*each) for each in (*stack[:1], *islice(ours, _CALLERS))]
    return " < ".join([*calls, f"task {task.get_name()}" if task else "no task"])


def _call(frame: FrameType, line: int) -> str:
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{line} {frame.f_code.co_name}"


TICK_SECONDS = 0.25
ALARM_SECONDS = 0.2
BETWEEN_ALARMS = 10.0
MINUTE = 60.0
ASLEEP_SECONDS = 1.0
"""Clocks may drift apart by less than this; a larger difference means that the machine slept."""


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant by three clocks: `awake` stops while the machine sleeps, `always` does not, `cpu` is CPU time."""

    awake: float
    always: float
    cpu: float


def moment() -> Moment:
    """The current moment."""
    return Moment(time.monotonic(), boot_seconds(), time.thread_time())


class LagMonitor:
    """Ticks four times a second and measures each delay; a block may measure up to one tick too short."""

    def __init__(self, awake: Callable[[], None], now: Callable[[], Moment] = moment) -> None:
        self._now = now
        self._awake = awake
        self._minute: deque[tuple[float, float]] = deque(maxlen=ceil(MINUTE / TICK_SECONDS))
        self._worst = 0.0
        self._alarmed_at: float | None = None
        self._started_at = now().awake
        self._before: Moment | None = None

    @property
    def lag(self) -> LoopLag:
        """The delays of the last minute and since the start."""
        since = self._now().awake - MINUTE
        late = sorted(seconds for at, seconds in self._minute if at > since) or [0.0]
        return LoopLag(_ms(late[-1]), _ms(late[ceil(0.99 * len(late)) - 1]), _ms(self._worst))

    async def run(self) -> None:
        """Watch until cancelled."""
        self._before = None
        with LoopWatchdog(TICK_SECONDS + ALARM_SECONDS).watching() as watchdog:
            await Periodic("ticks", TICK_SECONDS, partial(self._tick, watchdog)).run()

    async def _tick(self, watchdog: LoopWatchdog) -> None:
        self._awake()
        before, self._before = self._before, self._now()
        if before is not None:
            self.note(before, self._before, watchdog)
        watchdog.tick()

    def note(self, before: Moment, after: Moment, watchdog: LoopWatchdog) -> None:
        """Count one tick, unless the machine slept during it."""
        passed = after.awake - before.awake
        asleep = after.always - before.always - passed
        if asleep > ASLEEP_SECONDS:
            log.info("machine.slept", seconds=round(asleep))
            return
        late = max(0.0, passed - TICK_SECONDS)
        self._minute.append((after.awake, late))
        self._worst = max(self._worst, late)
        if late > ALARM_SECONDS and (self._alarmed_at is None or after.awake - self._alarmed_at >= BETWEEN_ALARMS):
            self._alarmed_at = after.awake
            # the first imports block it on any busy machine
            tell = log.warning if after.awake - self._started_at > MINUTE else log.info
            tell("loop.blocked", ms=_ms(late), cpu_ms=_ms(after.cpu - before.cpu), during=watchdog.seen)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)

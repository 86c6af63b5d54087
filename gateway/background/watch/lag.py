"""Event-loop lag: how late the loop comes back to what is due, which is how long everybody waited for somebody."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import ceil

import structlog

from gateway.background.upkeep import Periodic
from gateway.background.watch.witness import Witness
from gateway.config.machine import boot_seconds
from gateway.domain.vitals import LoopLag

TICK_SECONDS = 0.25
ALARM_SECONDS = 0.2
BETWEEN_ALARMS = 10.0
MINUTE = 60.0
ASLEEP_SECONDS = 1.0
"""Clocks may drift apart by less than that; more means that the machine slept."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Moment:
    """One instant by three clocks: `awake` stands still while the machine sleeps, `always` does not, `cpu` is ours."""

    awake: float
    always: float
    cpu: float


def moment() -> Moment:
    """Now."""
    return Moment(time.monotonic(), boot_seconds(), time.thread_time())


class LagMonitor:
    """Ticks four times a second; a block shows whole, or shorter by the part of a tick that had yet to pass."""

    def __init__(self, now: Callable[[], Moment] = moment, awake: Callable[[], None] = lambda: None) -> None:
        self._now = now
        self._awake = awake
        self._minute: deque[tuple[float, float]] = deque(maxlen=ceil(MINUTE / TICK_SECONDS))
        self._worst = 0.0
        self._alarmed_at: float | None = None
        self._before: Moment | None = None

    @property
    def lag(self) -> LoopLag:
        """What was seen."""
        since = self._now().awake - MINUTE
        late = sorted(seconds for at, seconds in self._minute if at > since) or [0.0]
        return LoopLag(_ms(late[-1]), _ms(late[ceil(0.99 * len(late)) - 1]), _ms(self._worst))

    async def run(self) -> None:
        """Watch until cancelled."""
        self._before = None
        with Witness(TICK_SECONDS + ALARM_SECONDS).watching() as witness:
            await Periodic("ticks", TICK_SECONDS, partial(self._tick, witness)).run()

    async def _tick(self, witness: Witness) -> None:
        self._awake()
        before, self._before = self._before, self._now()
        if before is not None:
            self.note(before, self._before, witness)
        witness.tick()

    def note(self, before: Moment, after: Moment, witness: Witness) -> None:
        """One tick. What the machine slept through was nobody's fault."""
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
            log.warning("loop.blocked", ms=_ms(late), cpu_ms=_ms(after.cpu - before.cpu), during=witness.seen)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 1)

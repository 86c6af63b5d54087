"""A process whose event loop stands still ends itself; one that was frozen does not. Each is a process of its own."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from gateway.background.upkeep import event_loop as lag_module
from gateway.background.upkeep.event_loop import LagMonitor, LoopWatchdog, Moment
from tests.fakes.eventually import eventually

HANGS = """
import asyncio, sys, time
from gateway.background.upkeep import event_loop
from gateway.background.upkeep.event_loop import LagMonitor

event_loop.LOOK_SECONDS = 0.05
event_loop.HUNG_LOOKS = 20
event_loop.TELL_SECONDS = {tell}
{more}

def never_come_back():
    time.sleep(60)

async def work():
    watching = asyncio.create_task(LagMonitor(lambda: None).run())
    print("up", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    {then}

asyncio.run(work())
"""
SILENT_LOG = """
import structlog
structlog.configure(processors=[lambda *_: time.sleep(60)])
"""


@contextmanager
def process(then: str, tell: float = 20.0, more: str = "") -> Iterator["subprocess.Popen[str]"]:
    """Does that once it is sent a line."""
    code = HANGS.format(then=then, tell=tell, more=more)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "up\n"
            yield started
        finally:
            started.kill()


def test_one_that_hangs_ends_and_says_where_it_was() -> None:
    with process("never_come_back()") as hanging:
        told, _ = hanging.communicate("go\n", timeout=30)
    assert hanging.returncode == 70
    assert "gateway.hung" in told
    assert "in never_come_back" in told


def test_a_log_that_hangs_too_keeps_it_from_nothing() -> None:
    with process("never_come_back()", tell=0.1, more=SILENT_LOG) as hanging:
        hanging.communicate("go\n", timeout=30)
    assert hanging.returncode == 70


def test_one_that_was_frozen_for_longer_goes_on() -> None:
    with process('print("going on", flush=True)') as frozen:
        frozen.send_signal(signal.SIGSTOP)
        time.sleep(2)
        frozen.send_signal(signal.SIGCONT)
        told, _ = frozen.communicate("go\n", timeout=30)
    said = told.splitlines()  # that the loop was blocked may be logged, too
    assert (frozen.returncode, "going on" in said) == (0, True)


TICK = lag_module.TICK_SECONDS


class Machine:
    """Its three clocks."""

    def __init__(self) -> None:
        self.now = Moment(100.0, 500.0, 0.0)
        self.monitor = LagMonitor(lambda: None, lambda: self.now)
        self.watchdog = LoopWatchdog(1.0)

    def tick(self, late: float = 0.0, *, asleep: float = 0.0, cpu: float = 0.0) -> None:
        before, passed = self.now, TICK + late
        self.now = Moment(before.awake + passed, before.always + passed + asleep, before.cpu + cpu)
        self.monitor.note(before, self.now, self.watchdog)


def test_the_worst_and_the_99th_percentile_of_the_last_minute_are_told() -> None:
    machine = Machine()
    assert machine.monitor.lag == lag_module.LoopLag(0.0, 0.0, 0.0)
    for late in (0.15, *[0.05] * 3, *[0.001] * 196):
        machine.tick(late)
    assert machine.monitor.lag == lag_module.LoopLag(150.0, 50.0, 150.0)
    for _ in range(240):
        machine.tick(0.002)
    assert machine.monitor.lag == lag_module.LoopLag(2.0, 2.0, 150.0)


def test_a_block_is_alarming_once_in_ten_seconds() -> None:
    machine = Machine()
    machine.watchdog.seen = "tools/x.py:7 grind < task chat 1"
    with capture_logs() as logs:
        machine.tick(0.9)
    assert [each["log_level"] for each in logs] == ["info"]  # while the gateway starts
    for _ in range(240):
        machine.tick()
    with capture_logs() as logs:
        machine.tick(0.19)
        machine.tick(0.3, cpu=0.29)
        machine.tick(0.4)
        for _ in range(40):
            machine.tick()
        machine.tick(0.5)
    assert [(each["event"], each["ms"], each["cpu_ms"]) for each in logs] == [
        ("loop.blocked", 300.0, 290.0),
        ("loop.blocked", 500.0, 0.0),
    ]
    assert logs[0]["during"] == "tools/x.py:7 grind < task chat 1"


def test_a_machine_that_slept_blocked_nobody() -> None:
    machine = Machine()
    with capture_logs() as logs:
        machine.tick(asleep=3600)
        machine.tick(2.0, asleep=3600)
    assert [each["event"] for each in logs] == ["machine.slept"] * 2
    assert machine.monitor.lag.worst_ever_ms == 0


@contextmanager
def watched(monitor: LagMonitor) -> Iterator[None]:
    running = asyncio.create_task(monitor.run())
    try:
        yield
    finally:
        running.cancel()


async def test_what_blocks_the_loop_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag_module, "TICK_SECONDS", 0.01)
    monkeypatch.setattr(lag_module, "BETWEEN_ALARMS", 0.0)  # another block, of the machine's making, hides no other
    monitor = LagMonitor(lambda: None)

    def grind_the_loop_to_a_halt() -> None:
        time.sleep(1.8)

    async def grind() -> None:
        grind_the_loop_to_a_halt()

    with capture_logs() as logs, watched(monitor):
        await asyncio.sleep(0.05)
        await asyncio.create_task(grind(), name="the culprit")
        await eventually(lambda: any("grind_the_loop_to_a_halt" in str(log["during"]) for log in logs))
    blocked = next(log for log in logs if "grind_the_loop_to_a_halt" in str(log["during"]))
    assert blocked["event"] == "loop.blocked"
    assert blocked["during"].endswith("task the culprit")
    assert monitor.lag.worst_ms >= 200

"""A process whose event loop stands still ends itself; one that was frozen does not. Each is a process of its own."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

HANGS = """
import asyncio, sys, time
from gateway.background.watch import witness
from gateway.background.watch.lag import LagMonitor

witness.LOOK_SECONDS = 0.05
witness.HUNG_LOOKS = 20
witness.TELL_SECONDS = {tell}
{more}

def never_come_back():
    time.sleep(60)

async def work():
    watching = asyncio.create_task(LagMonitor().run())
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
    *_, said = told.splitlines()  # before it, that the loop was blocked may be logged
    assert (frozen.returncode, said) == (0, "going on")

"""A witness: a thread that looks what the event loop does while it comes back to nobody, and ends one that hangs."""

import asyncio
import faulthandler
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from traceback import walk_stack
from types import FrameType
from typing import NoReturn

import structlog

LOOK_SECONDS = 1.0
"""Often enough for what hurts: every look wakes the machine up."""
HUNG_LOOKS = 60
"""In a row, and no tick between them. A process that was frozen, or a machine that slept, was not looked at."""
TELL_SECONDS = 5.0
"""The log may be what hangs."""
_CALLERS = 3
_ROOT = Path(__file__).parents[3]
_OURS = tuple(f"{_ROOT / package}{os.sep}" for package in ("gateway", "channels"))

log = structlog.get_logger(__name__)


class Witness:
    """Told of every tick; once a tick is missing for `patience` seconds it notes what stands in the way.

    After a minute it ends the process, so that whatever keeps it up starts it again. Code that holds the interpreter's
    lock holds up this thread too: then it sees what runs right after.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._ticked_at = time.monotonic()
        self._missed = 0
        self._stop = threading.Event()
        self.seen: str | None = None

    def tick(self) -> None:
        """The loop is back; what was seen before is forgotten."""
        self.seen = None
        self._missed = 0
        self._ticked_at = time.monotonic()

    @contextmanager
    def watching(self) -> Iterator["Witness"]:
        """Look at the running loop, from a thread that ends with the block."""
        loop, ident = asyncio.get_running_loop(), threading.get_ident()
        thread = threading.Thread(target=self._look, args=(loop, ident), name="witness", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()

    def _look(self, loop: asyncio.AbstractEventLoop, ident: int) -> None:
        while not self._stop.wait(LOOK_SECONDS):
            self._missed += 1
            if self._missed > HUNG_LOOKS:
                _end()
            if self.seen is None and time.monotonic() - self._ticked_at > self._patience:
                self.seen = _account(asyncio.current_task(loop), sys._current_frames().get(ident))


def _end() -> NoReturn:
    """Like a kill, which costs no data: nothing that hangs can be stopped in order."""
    teller = threading.Thread(target=_tell, name="witness log", daemon=True)
    teller.start()
    teller.join(TELL_SECONDS)
    os._exit(os.EX_SOFTWARE)


def _tell() -> None:
    with TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        log.critical("gateway.hung", hint="the event loop stood still for a minute", exception=file.read())


def _account(task: "asyncio.Task[object] | None", frame: FrameType | None) -> str:
    """The task and where it is: the innermost call, then ours that led to it; names and lines only."""
    stack = list(walk_stack(frame)) if frame else []
    ours = (each for each in stack[1:] if each[0].f_code.co_filename.startswith(_OURS))
    calls = [_call(*each) for each in (*stack[:1], *islice(ours, _CALLERS))]
    return " < ".join([*calls, f"task {task.get_name()}" if task else "no task"])


def _call(frame: FrameType, line: int) -> str:
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{line} {frame.f_code.co_name}"

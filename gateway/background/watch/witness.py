"""A witness: a thread that looks what the event loop is doing while it comes back to nobody."""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import FrameType

LOOK_SECONDS = 1.0
"""Often enough for what hurts: every look wakes the machine up."""
_CALLERS = 3
_ROOT = Path(__file__).parents[3]
_OURS = tuple(f"{_ROOT / package}{os.sep}" for package in ("gateway", "channels"))


class Witness:
    """Told of every tick; once a tick is missing for `patience` seconds it notes what stands in the way.

    Code that holds the interpreter's lock holds up this thread too: then it sees what runs right after.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._ticked_at = time.monotonic()
        self._stop = threading.Event()
        self.seen: str | None = None

    def tick(self) -> None:
        """The loop is back; what was seen before is forgotten."""
        self.seen = None
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
            if self.seen is None and time.monotonic() - self._ticked_at > self._patience:
                self.seen = _account(asyncio.current_task(loop), sys._current_frames().get(ident))


def _account(task: "asyncio.Task[object] | None", frame: FrameType | None) -> str:
    """The task and where it is: the innermost call, then ours that led to it; names and lines only."""
    stack = list(_stack(frame))
    ours = (each for each in stack[1:] if each.f_code.co_filename.startswith(_OURS))
    calls = [f"{_place(each)} {each.f_code.co_name}" for each in (*stack[:1], *islice(ours, _CALLERS))]
    return " < ".join([*calls, f"task {task.get_name()}" if task else "no task"])


def _stack(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _place(frame: FrameType) -> str:
    return f"{'/'.join(Path(frame.f_code.co_filename).parts[-2:])}:{frame.f_lineno}"

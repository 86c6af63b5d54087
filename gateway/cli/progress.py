"""A progress bar on the terminal, for what takes more than a moment."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Timer

from gateway.cli.console import show_progress

QUIET_FOR = 1.0
"""Seconds before it is shown."""
REDRAWN_EVERY = 0.1
"""Seconds."""

Advance = Callable[[int], None]


@contextmanager
def slow(text: str) -> Iterator[None]:
    """Show the text on a terminal once the block has taken a second, until it ends."""
    shown = Event()

    def show() -> None:
        shown.set()
        show_progress(text)

    timer = Timer(QUIET_FOR, show)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if shown.is_set():
            show_progress("")


@contextmanager
def progress(title: str, total: int, *, quiet: bool) -> Iterator[Advance]:
    """Tell the result how much of `total` is done; nothing is shown to a program, or when `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    shown_at = time.monotonic() + QUIET_FOR
    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(title, total=total, visible=False)

        def advance(count: int) -> None:
            nonlocal shown_at
            due = time.monotonic() >= shown_at
            bar.update(task, advance=count, visible=due or bar.tasks[0].visible)
            if due:
                shown_at = time.monotonic() + REDRAWN_EVERY
                bar.refresh()

        yield advance

"""A progress bar on the terminal, for what takes more than a moment."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_FOR = 1.0
"""Seconds before it is shown."""
REDRAWN_EVERY = 0.1
"""Seconds."""

Advance = Callable[[int], None]


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

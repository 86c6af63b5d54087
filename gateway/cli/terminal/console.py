"""The only way to the terminal: text from outside can't move the cursor, reverse the reading order or hide.

Also progress bars and error reports.
"""

import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from threading import Event, Timer
from traceback import format_exception
from types import TracebackType
from typing import BinaryIO, TextIO

from gateway.domain.errors import SupaclawError, leaves
from gateway.domain.text.texts import printable


class Style(StrEnum):
    """ANSI codes for the words of a command itself."""

    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


def echo(
    text: object = "", *, lead: str = "", style: Style | None = None, end: str = "\n", error: bool = False
) -> None:
    """Print text, on standard error if `error`; `lead` comes before it, in `style` if the stream shows colours."""
    stream = sys.stderr if error else sys.stdout
    lead = printable(lead)
    if lead and style and _has_colours(stream):
        lead = f"\x1b[{style}m{lead}\x1b[0m"
    print(f"{lead}{printable(str(text))}", end=end, file=stream, flush=True)


def echo_log_line(line: str) -> None:
    """Print a line made by `gateway.logs.files.readable`, which escapes its facts and adds colours of its own."""
    print(line, flush=True)


def show_progress(text: str) -> None:
    """Show the current step on a terminal, in a line that the next one overwrites; "" clears it."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{printable(text)}", end="", file=sys.stderr, flush=True)


def redraw(picture: str) -> None:
    """Print the picture; on a terminal, clear the screen first."""
    if sys.stdout.isatty():
        print("\x1b[H\x1b[2J", end="")
    echo(picture)


def copy_out(file: BinaryIO) -> None:
    """Write the file's bytes to standard output; a terminal gets printable text."""
    if sys.stdout.isatty():
        echo(file.read().decode("utf-8", "backslashreplace"), end="")
    else:
        shutil.copyfileobj(file, sys.stdout.buffer)


def _has_colours(stream: TextIO) -> bool:
    return stream.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


QUIET_SECONDS = 1.0
"""Time before progress is shown."""
REDRAW_SECONDS = 0.1
"""Time between two pictures of a progress bar."""

Advance = Callable[[int], None]


@contextmanager
def show_after_a_second(text: str) -> Iterator[None]:
    """Show the text on a terminal once the block has taken a second, until it ends."""
    shown = Event()

    def show() -> None:
        shown.set()
        show_progress(text)

    timer = Timer(QUIET_SECONDS, show)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        if shown.is_set():
            show_progress("")


@contextmanager
def progress_bar(title: str, total: int, *, quiet: bool) -> Iterator[Advance]:
    """Yield a function to call with each part of `total` that is done; a bar is shown on terminals, unless `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield lambda _count: None
        return
    from rich.console import Console
    from rich.progress import Progress

    shown_at = time.monotonic() + QUIET_SECONDS
    with Progress(console=Console(stderr=True), transient=True, auto_refresh=False) as bar:
        task = bar.add_task(title, total=total, visible=False)

        def advance(count: int) -> None:
            nonlocal shown_at
            due = time.monotonic() >= shown_at
            bar.update(task, advance=count, visible=due or bar.tasks[0].visible)
            if due:
                shown_at = time.monotonic() + REDRAW_SECONDS
                bar.refresh()

        yield advance


def print_error(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    """Print the error to stderr in one line: what is wrong and what to do."""
    for leaf in leaves(error):
        match leaf:
            case SupaclawError():
                _print_lines(str(leaf))
            case KeyboardInterrupt() | BrokenPipeError():
                continue
            case OSError() if leaf.filename or leaf.errno in {errno.ENOSPC, errno.EDQUOT}:
                where = f": {leaf.filename}" if leaf.filename else ""
                _print_lines(f"{leaf.strerror}{where}; check it, or run `supaclaw doctor`")
            case _:
                _print_lines(f"{type(leaf).__name__}: {leaf} (a defect; SUPACLAW_DEBUG=1 shows where)")


def print_traceback(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    """Print the error to stderr with its traceback."""
    echo("".join(format_exception(error)), end="", error=True)


def _print_lines(text: str) -> None:
    for line in text.splitlines():
        echo(f"supaclaw: {line}", error=True)

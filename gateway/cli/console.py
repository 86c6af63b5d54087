"""The only way to the terminal: text from outside cannot move the cursor, reverse the reading order or hide."""

import os
import shutil
import sys
from enum import StrEnum
from typing import BinaryIO, TextIO

from gateway.domain.text.texts import printable


class Style(StrEnum):
    """How a terminal shows our own words."""

    DIM = "2"
    RED = "31"
    GREEN = "32"
    YELLOW = "33"


def echo(
    text: object = "", *, lead: str = "", style: Style | None = None, end: str = "\n", error: bool = False
) -> None:
    """Print text, to standard error if `error`; `lead` comes before it, in `style` where colours are shown."""
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
    """Print the picture, on a terminal in place of everything before it."""
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

"""Other programs, run to their end."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


def run(*command: str, ok: bool = True, show: str = "") -> str:
    """What it printed; raises `SystemExit` with its last words unless it ended well. `show` marks progress in it."""
    told = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8") as process:
        assert process.stdout is not None
        for line in process.stdout:
            told.append(line)
            if show and show in line:
                say(line.strip()[:100])
    if ok and process.returncode != 0:
        sys.exit(f"failed: {' '.join(command)}\n{''.join(told[-30:])}")
    return "".join(told)


def say(text: str) -> None:
    """Print it at once."""
    sys.stdout.write(f"     {text}\n")
    sys.stdout.flush()


def check(holds: bool, what: str) -> None:
    """Raises `SystemExit` unless it holds."""
    if not holds:
        sys.exit(f"NOT SO: {what}")
    say(what)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Say what happens, and how long it took."""
    sys.stdout.write(f"==== {name}\n")
    sys.stdout.flush()
    begun = time.monotonic()
    yield
    say(f"{time.monotonic() - begun:.1f} s")

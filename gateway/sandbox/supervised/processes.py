"""Processes by their numbers, as /proc tells them."""

import os
from collections.abc import Iterator
from contextlib import suppress


def descendants(process: int) -> Iterator[int]:
    """Yield its children, theirs and so on; those that start meanwhile may be left out."""
    waiting = [process]
    while waiting:
        with suppress(OSError):
            parent = waiting.pop()
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children") as file:
                    found = [int(each) for each in file.read().split()]
                waiting += found
                yield from found


def process_of(thread: int) -> int:
    """That a thread belongs to; raises `OSError`."""
    with open(f"/proc/{thread}/status", "rb") as file:
        return next(int(line.split()[1]) for line in file if line.startswith(b"Tgid:"))


def group_of(process: int) -> int:
    """The number of its group; 0 if it is gone."""
    with suppress(OSError):
        return os.getpgid(process)
    return 0

"""Unfinished erasures, as numbers only, never with a word of the erased text."""

import json
from contextlib import suppress
from pathlib import Path

from gateway.config.data.files import read_regular, replace_regular, sync_to_disk

_NAME = "erasures.unfinished"


def unfinished(data: Path) -> dict[int, int]:
    """The ids of memories whose erasure broke off, each with the number of its --also words."""
    with suppress(OSError, ValueError):
        return {int(id): int(words) for id, words in json.loads(read_regular(data / _NAME)).items()}
    return {}


def note_begun(data: Path, memory: int, words: int) -> None:
    """Record an erasure, on disk, before anything is erased."""
    _save(data, {**unfinished(data), memory: words})


def note_finished(data: Path, memory: int) -> None:
    """Remove the record of a finished erasure."""
    _save(data, {id: words for id, words in unfinished(data).items() if id != memory})


def reminder(data: Path) -> str:
    """A line about unfinished erasures, "problem; fix"; "" if there are none."""
    if not (left := unfinished(data)):
        return ""
    also = " with the same --also" if any(left.values()) else ""
    again = f"stop the gateway and run `supaclaw memories forget {min(left)} --erase` again{also}"
    return f"the erasure of memory {', '.join(map(str, sorted(left)))} broke off; {again}"


def _save(data: Path, left: dict[int, int]) -> None:
    path = data / _NAME
    if left:
        replace_regular(path, json.dumps(left).encode())
        sync_to_disk(path)
    else:
        path.unlink(missing_ok=True)
    sync_to_disk(data)

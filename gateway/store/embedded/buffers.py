"""How much of the database the embedded server keeps in memory of its own: `shared_buffers`.

A search by vector reads hundreds of pages at random; each that comes from the system's page cache costs a call and a
copy. Memory is taken page by page as it is read, so a quiet gateway doesn't hold what it may take.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_LEAST = 32 * 2**20
_SHARE = 8
"""The part of the machine's memory that is never exceeded: the page cache, the gateway and its jobs need the rest."""
_OURS = "32MB"
_SETTING = re.compile(r"^\s*shared_buffers\s*=?\s*'?([^'#\s]+)", re.IGNORECASE | re.MULTILINE)


def buffer_options(folder: Path, memory: int) -> str:
    """Options of the server of `folder` on a machine of so many bytes; none where the owner chose a value."""
    if any(value != _OURS for value in _settings(folder)):
        return ""
    return f"-c shared_buffers={max(_LEAST, min(_size(folder / 'base'), memory // _SHARE)) // 1024}kB"


def _settings(folder: Path) -> Iterator[str]:
    for name in ("postgresql.conf", "postgresql.auto.conf"):
        with suppress(OSError):
            yield from _SETTING.findall((folder / name).read_text(encoding="utf-8", errors="replace"))


def _size(folder: Path) -> int:
    """Bytes of all files below."""
    total = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, file)).st_size
    return total

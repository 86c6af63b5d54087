"""Room on the file systems the gateway writes to."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.cli.checks.folders import existing

_GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Room:
    """What a file system has left; `files` is None where it does not count them."""

    bytes: int
    files: int | None = None
    read_only: bool = False


def check_disk(patient: Patient) -> Iterator[Finding]:
    """There is room for the database, the logs and the workspace: one finding a file system."""
    places: dict[int, list[Path]] = {}
    for folder in (patient.environment.data, patient.environment.workspace, patient.environment.data / "logs"):
        place = existing(folder)
        places.setdefault(place.stat().st_dev, []).append(place)
    for same in places.values():
        yield judge(same[0], room(same[0]))


def room(place: Path) -> Room:
    """What is left around `place` for users other than root."""
    told = os.statvfs(place)
    files = told.f_favail if told.f_files else None
    return Room(told.f_bavail * told.f_frsize, files, bool(told.f_flag & os.ST_RDONLY))


def judge(place: Path, left: Room) -> Finding:
    """Whether that is enough."""
    if left.read_only:
        return Finding(Level.FAIL, "disk", f"{place} is on a read-only file system", "mount it writable")
    counted = "" if left.files is None else f", room for {left.files:,} files"
    text = f"{_size(left.bytes)} free{counted} at {place}"
    level = max(_level(left.bytes, _GIB // 5, _GIB), _level(left.files, 2_000, 20_000))
    fix = "free some space: when it runs out nothing can be stored, so nothing is accepted"
    return Finding((Level.OK, Level.WARN, Level.FAIL)[level], "disk", text, fix if level else "")


def _level(left: int | None, least: int, enough: int) -> int:
    return 0 if left is None or left >= enough else 1 if left >= least else 2


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count // 2**20} MiB"

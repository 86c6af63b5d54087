"""What the gateway keeps on disk: there, ours alone, writable, with room left."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.workspace.renewal import renewals
from gateway.workspace.tree import Workspace

_GIB = 1024**3


def _free(place: Path) -> int:
    return shutil.disk_usage(place).free


def check_folders(patient: Patient) -> Iterator[Finding]:
    """Data and workspace can be written, and nobody else can look into the data."""
    data = patient.environment.data
    if data.is_dir() and data.stat().st_mode & 0o077:
        yield Finding(Level.WARN, f"other users can look into {data}", f"chmod 700 {data}")
    yield _writable(data, "SUPACLAW_DATA")
    yield _writable(patient.environment.workspace, "SUPACLAW_WORKSPACE")
    for renewal in renewals(Workspace(patient.environment.workspace)):
        fix = "`supaclaw workspace diff` shows it" if renewal.edited else "the next start of the gateway renews it"
        yield Finding(Level.WARN, f"this version has a newer {renewal.path}", fix)


def check_keys(patient: Patient) -> Iterator[Finding]:
    """Every key can be read by us and by nobody else, and none is lost."""
    folder = patient.environment.data / "keys"
    keys = sorted(folder.iterdir()) if folder.exists() else []
    for key in keys:
        if key.stat().st_mode & 0o077:
            yield Finding(Level.WARN, f"other users can read {key}", f"chmod 600 {key}")
        if not os.access(key, os.R_OK) or not key.stat().st_size:
            yield Finding(Level.FAIL, f"{key} is empty or cannot be read", "chown it, or put it back from a backup")
    journal = folder / "journal"
    if not journal.exists() and any((patient.environment.workspace / "sessions").glob("*/*.md")):
        fix = f"put {journal} back from a backup; without it the files are written anew from the database"
        yield Finding(Level.WARN, "the key that signs the journals of the workspace is gone", fix)
    yield Finding(Level.OK, f"{len(keys)} in {folder}")


def check_disk(patient: Patient, free: Callable[[Path], int] = _free) -> Iterator[Finding]:
    """There is room for the database, the logs and the workspace: one finding a file system."""
    places = map(_existing, (patient.environment.data, patient.environment.workspace))
    for place in {place.stat().st_dev: place for place in places}.values():
        left = free(place)
        level = Level.OK if left >= _GIB else Level.WARN if left >= _GIB // 5 else Level.FAIL
        fix = "" if level is Level.OK else "free some space: when it runs out nothing can be stored or accepted"
        yield Finding(level, f"{left / _GIB:.1f} GiB free at {place}", fix)


def _writable(folder: Path, variable: str) -> Finding:
    place = _existing(folder)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        fix = f"make it a folder this user can write to, or set {variable} to another one"
        return Finding(Level.FAIL, f"{place} cannot be written as a folder", fix)
    return Finding(Level.OK, str(folder) if place == folder else f"{folder} will be made by the first start")


def _existing(folder: Path) -> Path:
    """The folder itself, or where it would be made."""
    return next(place for place in (folder, *folder.parents) if place.exists())

"""What the gateway keeps on disk: there, ours alone, writable."""

import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gateway.cli.checks.finding import Finding, Level, Patient
from gateway.config.duration import format_duration
from gateway.config.instance import holder
from gateway.workspace.journal.key import KEY_BYTES

_STALE_SECONDS = 45.0
"""The health file is rewritten every 10 s; a database that is away for a moment is no illness."""
_JOURNAL = "journal"
_MENDED = "make it a folder this user can write to, or set {} to another one"


def check_data(patient: Patient) -> Iterator[Finding]:
    """The data directory is ours alone and can be written."""
    data = patient.environment.data
    place = existing(data)
    if problem := _problem(place):
        yield Finding(Level.FAIL, "data", problem, _MENDED.format("SUPACLAW_DATA"))
    elif place != data:
        yield Finding(Level.OK, "data", f"{data} will be made by the first start")
    elif data.stat().st_mode & 0o077:
        yield Finding(Level.WARN, "data", f"other users can look into {data}", f"chmod 700 {data}")
    else:
        yield Finding(Level.OK, "data", str(data))


def check_keys(patient: Patient) -> Iterator[Finding]:
    """Every key can be read by us and by nobody else."""
    folder = patient.environment.data / "keys"
    if not folder.exists():
        yield Finding(Level.OK, "keys", "none yet, the first start makes them")
        return
    found = [_key(path) for path in sorted(folder.iterdir())]
    bad = [finding for finding in found if finding]
    yield from bad or [Finding(Level.OK, "keys", f"{len(found)} in {folder}, readable by this user only")]
    if not (folder / _JOURNAL).exists() and any((patient.environment.workspace / "sessions").glob("*/*.md")):
        fix = f"put {folder / _JOURNAL} back from a backup; without it the files are written anew from the database"
        yield Finding(Level.WARN, "keys", "the key that signs the journals of the workspace is gone", fix)


def check_workspace(patient: Patient) -> Iterator[Finding]:
    """The agent's files can be written."""
    workspace = patient.environment.workspace
    place = existing(workspace)
    if problem := _problem(place):
        yield Finding(Level.FAIL, "workspace", problem, _MENDED.format("SUPACLAW_WORKSPACE"))
    elif place != workspace:
        yield Finding(Level.OK, "workspace", f"{workspace} will be made by the first start")
    else:
        yield Finding(Level.OK, "workspace", str(workspace))


def check_checkpoints(patient: Patient) -> Iterator[Finding]:
    """Snapshots of the workspace can be kept."""
    every, folder = patient.config.checkpoints.every, patient.environment.data / "checkpoints"
    if folder.exists() and (problem := _problem(folder)):
        yield Finding(Level.FAIL, "checkpoints", problem, "make it a folder this user can write to, or move it away")
    elif every is None:
        fix = "set checkpoints.every if you want to be able to go back to earlier files"
        yield Finding(Level.WARN, "checkpoints", "the workspace is not snapshotted", fix)
    elif folder.exists():
        yield Finding(Level.OK, "checkpoints", f"every {format_duration(every)}, in {folder}")
    else:
        yield Finding(Level.OK, "checkpoints", f"none yet; one every {format_duration(every)} while the gateway runs")


def check_health(patient: Patient) -> Iterator[Finding]:
    """A gateway that runs says so every few seconds."""
    data = patient.environment.data
    pid = holder(data)
    if pid is None:
        yield Finding(Level.OK, "health", "no gateway runs here; `supaclaw up` starts one")
        return
    age = time.time() - max(_written(data / "health"), _written(data / "gateway.pid"))
    if age > _STALE_SECONDS:
        since = f"{datetime.fromtimestamp(time.time() - age, UTC):%Y-%m-%d %H:%M} UTC"
        fix = "`supaclaw logs --level warning` says why; `supaclaw down` and `supaclaw up` start it afresh"
        yield Finding(Level.FAIL, "health", f"the gateway (pid {pid}) has not been well since {since}", fix)
    else:
        yield Finding(Level.OK, "health", f"the gateway (pid {pid}) was well {max(age, 0):.0f} s ago")


def existing(folder: Path) -> Path:
    """The folder itself, or where it would be made."""
    return next(place for place in (folder, *folder.parents) if place.exists())


def _key(path: Path) -> Finding | None:
    try:
        content = path.read_bytes()
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}"
        return Finding(Level.FAIL, "keys", text, "run this as the gateway's user, or chown it")
    if not content or (path.name == _JOURNAL and len(content) != KEY_BYTES):
        return Finding(Level.FAIL, "keys", f"{path} is not what it was", "put it back from a backup")
    if path.stat().st_mode & 0o077:
        return Finding(Level.WARN, "keys", f"other users can read {path}", f"chmod 600 {path}")
    return None


def _problem(folder: Path) -> str | None:
    if not folder.is_dir():
        return f"{folder} is a file, not a folder"
    return None if os.access(folder, os.W_OK | os.X_OK) else f"{folder} cannot be written"


def _written(path: Path) -> float:
    return path.stat().st_mtime if path.exists() else 0.0

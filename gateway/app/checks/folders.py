"""The gateway's folders: present, private, writable, with free space."""

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from gateway.app.checks.context import CheckContext
from gateway.config.data.erasures import reminder
from gateway.domain.findings import Finding, Level
from gateway.workspace.files.tree import Workspace
from gateway.workspace.template import renewals

_GIB = 1024**3


def check_folders(context: CheckContext) -> Iterator[Finding]:
    """Data and workspace are writable; data, workspace, backups and .env are private."""
    from gateway.app.upgrade import BACKUPS

    data, workspace = context.environment.data, context.environment.workspace
    if data.is_dir() and data.stat().st_mode & 0o077:
        yield Finding(Level.WARN, f"other users can read {data}", f"chmod 700 {shlex.quote(str(data))}")
    # Sharing the workspace with a group can be intended.
    if not workspace.is_relative_to(data) and workspace.is_dir() and workspace.stat().st_mode & 0o007:
        yield Finding(Level.WARN, f"every user can read {workspace}", f"chmod -R o= {shlex.quote(str(workspace))}")
    for file in (context.environment.config.with_name(".env"), *sorted((data / BACKUPS).glob("*"))):
        yield from _private(file)
    yield _writable(data, "SUPACLAW_DATA")
    yield _writable(workspace, "SUPACLAW_WORKSPACE")
    if why := reminder(data):
        yield Finding(Level.WARN, *why.split("; ", 1))
    for renewal in renewals(Workspace(workspace)):
        fix = "`supaclaw workspace diff` shows it" if renewal.edited else "the next start of the gateway renews it"
        yield Finding(Level.WARN, f"this version has a newer {renewal.path}", fix)


def check_keys(context: CheckContext) -> Iterator[Finding]:
    """Every key is readable by us only, and none is missing."""
    folder = context.environment.data / "keys"
    keys = sorted(folder.iterdir()) if folder.exists() else []
    for key in keys:
        yield from _private(key)
        if not os.access(key, os.R_OK) or not key.stat().st_size:
            yield Finding(Level.FAIL, f"{key} is empty or cannot be read", "chown it, or restore it from a backup")
    journal = folder / "journal"
    if not journal.exists() and any((context.environment.workspace / "sessions").glob("*/*.md")):
        fix = f"restore {journal} from a backup; without it the files are rewritten from the database"
        yield Finding(Level.WARN, "the key that signs the workspace's journals is missing", fix)
    yield Finding(Level.OK, f"{len(keys)} in {folder}")


def check_disk(
    context: CheckContext, free: Callable[[Path], int] = lambda place: shutil.disk_usage(place).free
) -> Iterator[Finding]:
    """There is free space for the database, the logs and the workspace; one finding per file system."""
    places = map(_existing, (context.environment.data, context.environment.workspace))
    for place in {place.stat().st_dev: place for place in places}.values():
        left = free(place)
        level = Level.OK if left >= _GIB else Level.WARN if left >= _GIB // 5 else Level.FAIL
        fix = "" if level is Level.OK else "free some space: on a full disk no message can be stored or accepted"
        yield Finding(level, f"{left / _GIB:.1f} GiB free at {place}", fix)


def _private(file: Path) -> Iterator[Finding]:
    if file.is_file() and file.stat().st_mode & 0o077:
        yield Finding(Level.WARN, f"other users can read {file}", f"chmod 600 {shlex.quote(str(file))}")


def _writable(folder: Path, variable: str) -> Finding:
    place = _existing(folder)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        fix = f"make it a folder that this user can write to, or set {variable} to another one"
        return Finding(Level.FAIL, f"{place} is not a writable folder", fix)
    return Finding(Level.OK, str(folder) if place == folder else f"{folder} will be created by the first start")


def _existing(folder: Path) -> Path:
    """The folder, or its nearest existing parent."""
    return next(place for place in (folder, *folder.parents) if place.exists())

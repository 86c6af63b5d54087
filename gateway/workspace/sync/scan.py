"""Finds the files of a folder that are synchronised; what has not changed since it was last read is not read again."""

import hashlib
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway.domain.synced import Content
from gateway.domain.text.texts import storable
from gateway.workspace.checkpoints.snapshot import UNSETTLED_NS
from gateway.workspace.descent import READ
from gateway.workspace.measure import mostly_holes
from gateway.workspace.paths import MAX_LEVELS, WorkspaceError, WorkspacePath
from gateway.workspace.snapshot import MAX_FILES, State
from gateway.workspace.sync.plan import MAX_FILE_BYTES, Seen, excluded

_CHUNK = 1024 * 1024


@dataclass(slots=True)
class Scan:
    """The files by path, and why others, or whole folders, are left out."""

    files: dict[str, Seen] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


class _LeftOut(Exception):
    """A file is not synchronised; the text is the reason."""


def scan(root: Path, known: Mapping[str, Seen]) -> Scan:
    """Look at every file; raises `WorkspaceError` if that cannot be done. Blocks."""
    if not root.is_dir():
        raise WorkspaceError("not_found", f"there is no folder {root}")
    found, sure = Scan(), time.time_ns() - UNSETTLED_NS

    def unreadable(error: OSError) -> None:
        where = Path(error.filename or root).relative_to(root)
        if not where.parts:
            raise WorkspaceError("denied", f"{root} cannot be read ({error.strerror})")
        found.left_out[str(where)] = "unreadable"

    for path, folders, names, handle in os.fwalk(root, onerror=unreadable):
        parts = Path(path).relative_to(root).parts
        if len(parts) > MAX_LEVELS:
            raise WorkspaceError("too_many", f"{root} has more than {MAX_LEVELS} levels of folders")
        folders[:] = [name for name in folders if not excluded((*parts, name))]
        for name in [*folders, *(name for name in names if not excluded((*parts, name)))]:
            place = "/".join((*parts, name))
            with suppress(FileNotFoundError):
                try:
                    _look(found, known.get(place), handle, name, place, sure)
                except (_LeftOut, OSError, WorkspaceError) as error:
                    if isinstance(error, FileNotFoundError):
                        raise
                    found.left_out[storable(place)] = str(error) if isinstance(error, _LeftOut) else "unreadable"
        if len(found.files) > MAX_FILES:
            raise WorkspaceError("too_many", f"{root} has more than {MAX_FILES:,} files; remove some first")
    return found


def _look(found: Scan, known: Seen | None, folder: int, name: str, place: str, sure: int) -> None:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        return
    if not stat.S_ISREG(status.st_mode):
        raise _LeftOut("a link or a device")
    if storable(place) != place or str(WorkspacePath.parse(place)) != place:
        raise _LeftOut("a name that other machines can't have")
    state = State.of(status)
    unchanged = known is not None and known.state == state and state.changed_ns < sure
    found.files[place] = known if known and unchanged else Seen(_content(folder, name, status), state)


def _content(folder: int, name: str, status: os.stat_result) -> Content:
    if status.st_size > MAX_FILE_BYTES:
        raise _LeftOut(f"larger than {MAX_FILE_BYTES >> 20} MB")
    digest, size = hashlib.sha256(), 0
    file = os.open(name, READ, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode) or mostly_holes(file, os.fstat(file)):
            raise _LeftOut("mostly holes")
        while (chunk := os.read(file, _CHUNK)) and size <= MAX_FILE_BYTES:
            digest.update(chunk)
            size += len(chunk)
    finally:
        os.close(file)
    return Content(digest.hexdigest(), size, bool(status.st_mode & stat.S_IXUSR))

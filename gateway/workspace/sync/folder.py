"""A synchronised folder: finds its files, puts fetched contents into their places and deletes files.

A file that has changed since the plan was made is never overwritten.
"""

import hashlib
import os
import shutil
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from gateway.domain.files import FileContent
from gateway.domain.text.texts import storable
from gateway.workspace.checkpoints.snapshot import UNSETTLED_NS
from gateway.workspace.files.access import (
    READ_FLAGS,
    explained_errors,
    new_file,
    open_file,
    open_folder,
    temporary_name,
)
from gateway.workspace.files.paths import MAX_LEVELS, WorkspaceError, WorkspacePath
from gateway.workspace.files.states import MAX_FILES, State, mostly_holes
from gateway.workspace.sync.plan import MAX_FILE_BYTES, Drop, Pull, Seen, excluded

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


def _content(folder: int, name: str, status: os.stat_result) -> FileContent:
    if status.st_size > MAX_FILE_BYTES:
        raise _LeftOut(f"larger than {MAX_FILE_BYTES >> 20} MB")
    digest, size = hashlib.sha256(), 0
    file = os.open(name, READ_FLAGS, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode) or mostly_holes(file, os.fstat(file)):
            raise _LeftOut("mostly holes")
        while (chunk := os.read(file, _CHUNK)) and size <= MAX_FILE_BYTES:
            digest.update(chunk)
            size += len(chunk)
    finally:
        os.close(file)
    return FileContent(digest.hexdigest(), size, bool(status.st_mode & stat.S_IXUSR))


_Stamp = tuple[int, int, int]


class FileChanged(WorkspaceError):
    """The file is no longer what the plan was made for; the next look makes another one."""

    def __init__(self, path: WorkspacePath) -> None:
        super().__init__("changed", f"{path} has changed meanwhile")


def copy_out(root: Path, path: str, content: FileContent, to: BinaryIO) -> None:
    """Copy exactly this content out of the workspace; raises `Changed`."""
    where, digest = WorkspacePath.parse(path), hashlib.sha256()
    with explained_errors(where), open_file(root, where) as file:
        while chunk := os.read(file, 1024 * 1024):
            digest.update(chunk)
            to.write(chunk)
    if digest.hexdigest() != content.sha256:
        raise FileChanged(where)


def place_file(root: Path, pull: Pull, staged: Path) -> None:
    """Put a fetched file into its place. What it is to replace stays, under another name if the plan gives one."""
    where, name = WorkspacePath.parse(pull.path), WorkspacePath.parse(pull.path).name
    with explained_errors(where), open_folder(root, where.parents, create=0o777) as folder:
        draft = temporary_name()
        try:
            with (
                new_file(folder, draft, 0o777 if pull.content.executable else 0o666) as file,
                staged.open("rb") as copy,
            ):
                shutil.copyfileobj(copy, file)
            if pull.over is None:
                _link(folder, draft, name, where)
            else:
                before = _verified(folder, where, pull.over)
                if pull.beside is not None:
                    _link(folder, name, WorkspacePath.parse(pull.beside).name, where)
                _like(folder, name, draft, executable=pull.content.executable)
                if _stamp(folder, name) != before:
                    raise FileChanged(where)
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
        os.fsync(folder)


def drop_file(root: Path, action: Drop) -> None:
    """Delete the file, and the folder above it if that is empty; raises `Changed`."""
    where = WorkspacePath.parse(action.path)
    with explained_errors(where), open_folder(root, where.parents) as folder:
        before = _verified(folder, where, action.over)
        if _stamp(folder, where.name) != before:
            raise FileChanged(where)
        os.unlink(where.name, dir_fd=folder)
        os.fsync(folder)
    with suppress(OSError), open_folder(root, where.parents[:-1]) as above:
        os.rmdir(where.parents[-1] if where.parents else "", dir_fd=above)


def _verified(folder: int, where: WorkspacePath, content: FileContent) -> _Stamp:
    """How the file looks; raises `Changed` if anything else is in it."""
    before = _stamp(folder, where.name)
    try:
        file = os.open(where.name, READ_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        raise FileChanged(where) from None
    with open(file, "rb") as stream:
        if before is None or hashlib.file_digest(stream, "sha256").hexdigest() != content.sha256:
            raise FileChanged(where)
    return before


def _stamp(folder: int, name: str) -> _Stamp | None:
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return status.st_ino, status.st_size, status.st_mtime_ns
    return None


def _link(folder: int, name: str, to: str, where: WorkspacePath) -> None:
    """Give it another name, which must be free; raises `Changed`."""
    try:
        os.link(name, to, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        raise FileChanged(where) from None


def _like(folder: int, name: str, draft: str, *, executable: bool) -> None:
    """Give the draft the rights of the file, but for whether it is executable."""
    mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & ~0o111
    os.chmod(draft, mode | ((mode & 0o444) >> 2 if executable else 0), dir_fd=folder)

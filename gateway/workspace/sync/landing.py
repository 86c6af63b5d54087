"""How a content comes into its place, leaves for the store, or goes; whatever is there by then is never overwritten."""

import hashlib
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from gateway.domain.synced import Content
from gateway.workspace.atomic import new_file, temporary_name
from gateway.workspace.descent import READ, explained, open_file, open_folder
from gateway.workspace.paths import WorkspaceError, WorkspacePath
from gateway.workspace.sync.plan import Drop, Pull

_Stamp = tuple[int, int, int]


class Changed(WorkspaceError):
    """The file is no longer what the plan was made for; the next look makes another one."""

    def __init__(self, path: WorkspacePath) -> None:
        super().__init__("changed", f"{path} has changed meanwhile")


def copy_out(root: Path, path: str, content: Content, to: BinaryIO) -> None:
    """Copy exactly this content out of the workspace; raises `Changed`."""
    where, digest = WorkspacePath.parse(path), hashlib.sha256()
    with explained(where), open_file(root, where) as file:
        while chunk := os.read(file, 1024 * 1024):
            digest.update(chunk)
            to.write(chunk)
    if digest.hexdigest() != content.sha256:
        raise Changed(where)


def place(root: Path, pull: Pull, staged: Path) -> None:
    """Put a fetched file into its place. What it is to replace stays, under another name if the plan gives one."""
    where, name = WorkspacePath.parse(pull.path), WorkspacePath.parse(pull.path).name
    with explained(where), open_folder(root, where.parents, create=0o777) as folder:
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
                    raise Changed(where)
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
        os.fsync(folder)


def drop(root: Path, action: Drop) -> None:
    """Delete the file, and the folder above it if that is empty; raises `Changed`."""
    where = WorkspacePath.parse(action.path)
    with explained(where), open_folder(root, where.parents) as folder:
        before = _verified(folder, where, action.over)
        if _stamp(folder, where.name) != before:
            raise Changed(where)
        os.unlink(where.name, dir_fd=folder)
        os.fsync(folder)
    with suppress(OSError), open_folder(root, where.parents[:-1]) as above:
        os.rmdir(where.parents[-1] if where.parents else "", dir_fd=above)


def _verified(folder: int, where: WorkspacePath, content: Content) -> _Stamp:
    """How the file looks; raises `Changed` if anything else is in it."""
    before = _stamp(folder, where.name)
    try:
        file = os.open(where.name, READ, dir_fd=folder)
    except FileNotFoundError:
        raise Changed(where) from None
    with open(file, "rb") as stream:
        if before is None or hashlib.file_digest(stream, "sha256").hexdigest() != content.sha256:
            raise Changed(where)
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
        raise Changed(where) from None


def _like(folder: int, name: str, draft: str, *, executable: bool) -> None:
    """Give the draft the rights of the file, but for whether it is executable."""
    mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & ~0o111
    os.chmod(draft, mode | ((mode & 0o444) >> 2 if executable else 0), dir_fd=folder)

"""A synchronised folder: finds its files, puts fetched contents into their places and deletes files.

A file that has changed since the plan was made is never overwritten.
"""

import asyncio
import fcntl
import hashlib
import json
import os
import shutil
import stat
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import BinaryIO

from gateway.config.data.files import read_regular, replace_regular
from gateway.domain.errors import raising
from gateway.domain.files import FileContent
from gateway.domain.text.texts import storable
from gateway.workspace.files.access import (
    READ_FLAGS,
    explained_errors,
    new_file,
    open_file,
    open_folder,
    temporary_name,
)
from gateway.workspace.files.disk import UNREADABLE, FileState, FoundFile, holes_in, walk
from gateway.workspace.files.index import MAX_FILES, FileIndex
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath
from gateway.workspace.sync.plan import MAX_FILE_BYTES, Drop, Pull, Seen, excluded

MAX_BYTES = 100 * 1024**2
_AGAIN_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class StateFile:
    """Of one folder and one place in a store."""

    path: Path

    @classmethod
    def of(cls, folder: Path, root: Path, owner: str, place: str) -> "StateFile":
        """In a folder of such files."""
        key = json.dumps([os.path.realpath(root), owner, place])
        return cls(folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.json")

    def load(self) -> Mapping[str, FileContent]:
        """The contents that both sides had; none if the file is missing or damaged, so that nothing is deleted."""
        with suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(read_regular(self.path, MAX_BYTES))
            return {path: FileContent(*content) for path, content in found["base"].items()}
        return {}

    def save(self, base: Mapping[str, FileContent]) -> None:
        """Replace it; a crash leaves the old one, which says less, and never what isn't so."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        contents = {path: astuple(content) for path, content in base.items()}
        replace_regular(self.path, json.dumps({"base": contents}).encode())

    def staging(self, number: int) -> Path:
        """Where a content is on its way between the folder and the store."""
        return self.path.with_suffix(f".{number}.part")

    def clear(self) -> None:
        """Delete what a process left there when it was killed."""
        for left in self.path.parent.glob(f"{self.path.stem}.*.part"):
            left.unlink(missing_ok=True)

    @asynccontextmanager
    async def held(self) -> AsyncGenerator[None, None]:
        """One process at a time works on a folder."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            while True:
                with suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                await asyncio.sleep(_AGAIN_SECONDS)
            yield
        finally:
            os.close(file)


@dataclass(slots=True)
class Scan:
    """The files by path, and why others, or whole folders, are left out."""

    files: dict[str, Seen] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


def scan(index: FileIndex) -> Scan:
    """Look at every file; raises `WorkspaceError` if that cannot be done. Blocks."""
    root, found, states = index.root, Scan(), dict[str, FileState]()

    def left_out(path: str, why: str) -> None:
        found.left_out[storable(path)] = why

    if not root.is_dir():
        raise WorkspaceError("not_found", f"there is no folder {root}")
    try:
        for file in walk(root, excluded, left_out):
            if why := _why_left_out(file):
                left_out(file.path, why)
            else:
                states[file.path] = FileState.of(file.status)
            if len(states) > MAX_FILES:
                raise WorkspaceError("too_many", f"{root} has more than {MAX_FILES:,} files; remove some first")
    except OSError as error:
        raise WorkspaceError("denied", f"{root} cannot be read ({error.strerror})") from error
    for path, content in index.contents(states).items():
        if content is None:
            left_out(path, UNREADABLE)
        else:
            found.files[path] = Seen(content, states[path].modified_ns)
    return found


def _why_left_out(found: FoundFile) -> str:
    """Why a file is not synchronised; "" if it is."""
    path, status, _ = found
    if not stat.S_ISREG(status.st_mode):
        return "a link or a device"
    try:
        if storable(path) != path or str(WorkspacePath.parse(path)) != path:
            return "a name that other machines can't have"
    except WorkspaceError:
        return UNREADABLE
    if status.st_size > MAX_FILE_BYTES:
        return f"larger than {MAX_FILE_BYTES >> 20} MB"
    return "mostly holes" if holes_in(found) else ""


class FileChanged(WorkspaceError):
    """The file is no longer what the plan was made for; the next look makes another one."""

    def __init__(self, path: WorkspacePath) -> None:
        super().__init__("changed", f"{path} has changed meanwhile")


def copy_out(root: Path, path: str, content: FileContent, to: BinaryIO) -> None:
    """Copy exactly this content out of the workspace; raises `FileChanged`."""
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
        draft, mode = temporary_name(), 0o777 if pull.content.executable else 0o666
        try:
            with new_file(folder, draft, mode) as file, staged.open("rb") as copy:
                shutil.copyfileobj(copy, file)
            if pull.over is None:
                _link(folder, draft, name, where)
            else:
                before = _verified(folder, where, pull.over)
                if pull.beside is not None:
                    _link(folder, name, WorkspacePath.parse(pull.beside).name, where)
                    before = _verified(folder, where, pull.over)  # the link has changed its state
                _like(folder, name, draft, executable=pull.content.executable)
                if _stamp(folder, name) != before:
                    raise FileChanged(where)
                os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
        os.fsync(folder)


def drop_file(root: Path, action: Drop) -> None:
    """Delete the file, and the folder above it if that is empty; raises `FileChanged`."""
    where = WorkspacePath.parse(action.path)
    with explained_errors(where), open_folder(root, where.parents) as folder:
        before = _verified(folder, where, action.over)
        if _stamp(folder, where.name) != before:
            raise FileChanged(where)
        os.unlink(where.name, dir_fd=folder)
        os.fsync(folder)
    with suppress(OSError), open_folder(root, where.parents[:-1]) as above:
        os.rmdir(where.parents[-1] if where.parents else "", dir_fd=above)


def _verified(folder: int, where: WorkspacePath, content: FileContent) -> FileState:
    """How the file looks; raises `FileChanged` if anything else is in it."""
    before = _stamp(folder, where.name)
    with raising(FileChanged(where), FileNotFoundError):
        file = os.open(where.name, READ_FLAGS, dir_fd=folder)
    with open(file, "rb") as stream:
        if before is None or hashlib.file_digest(stream, "sha256").hexdigest() != content.sha256:
            raise FileChanged(where)
    return before


def _stamp(folder: int, name: str) -> FileState | None:
    with suppress(FileNotFoundError):
        return FileState.of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    return None


def _link(folder: int, name: str, to: str, where: WorkspacePath) -> None:
    """Give it another name, which must be free; raises `FileChanged`."""
    with raising(FileChanged(where), FileExistsError):
        os.link(name, to, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)


def _like(folder: int, name: str, draft: str, *, executable: bool) -> None:
    """Give the draft the rights of the file, but for whether it is executable."""
    mode = stat.S_IMODE(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) & ~0o111
    os.chmod(draft, mode | ((mode & 0o444) >> 2 if executable else 0), dir_fd=folder)

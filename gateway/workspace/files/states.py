"""The state of files: size and hash of one, the states of all at a moment, and what changed between two."""

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway.workspace.files.access import explained_errors, open_file
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath
from gateway.workspace.files.tree import Written

SPARSE_BYTES = 1024 * 1024

_CHUNK = 1024 * 1024


def measure(root: Path, path: str, most: int) -> Written:
    """Size and hash of a file. Raises `WorkspaceError`, with code `too_large` for more than `most` bytes."""
    where = WorkspacePath.parse(path)
    digest, size = hashlib.sha256(), 0
    with explained_errors(where), open_file(root, where) as file:
        _check(os.fstat(file).st_size, most, where)
        while chunk := os.pread(file, _CHUNK, size):
            digest.update(chunk)
            size += len(chunk)
            _check(size, most, where)
    return Written(str(where), size, digest.hexdigest())


def mostly_holes(file: int, status: os.stat_result) -> bool:
    """Whether most of a large file is nowhere on disk: it takes no room, and reading it gives zeros for hours."""
    if status.st_size < SPARSE_BYTES or status.st_blocks * 1024 > status.st_size:
        return False
    data = end = 0
    with suppress(OSError):  # there is no data beyond
        while True:
            start = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, start, os.SEEK_HOLE)
            data += end - start
    os.lseek(file, 0, os.SEEK_SET)
    return data * 2 < status.st_size


def _check(size: int, most: int, path: WorkspacePath) -> None:
    if size > most:
        message = f"{path} has {size / 1e6:.1f} MB; the limit for sending there is {most / 1e6:g} MB."
        raise WorkspaceError("too_large", message)


MAX_FILES = 50_000
MAX_HASHED_BYTES = 1024**3


@dataclass(frozen=True, slots=True)
class State:
    """Of a file; a write changes it, even one that sets the time back."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> "State":
        """As the system tells it."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths, sorted."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    deleted: tuple[str, ...]


def take_snapshot(root: Path, without: Collection[str]) -> Mapping[str, State]:
    """The state of each regular file by path, but in these folders at the top.

    Raises `WorkspaceError` with code `too_many` for more than `MAX_FILES`.
    """
    found: dict[str, State] = {}
    for path, status in _files(str(root), "", without):
        found[path] = State.of(status)
        if len(found) > MAX_FILES:
            raise WorkspaceError("too_many", f"The workspace has more than {MAX_FILES:,} files; remove some first.")
    return found


def changes(before: Mapping[str, State], after: Mapping[str, State]) -> Changes:
    """What happened between two snapshots."""
    return Changes(
        tuple(sorted(after.keys() - before.keys())),
        tuple(sorted(path for path in after.keys() & before.keys() if after[path] != before[path])),
        tuple(sorted(before.keys() - after.keys())),
    )


@dataclass(slots=True)
class Hashes:
    """Hashes of files; each is computed again only when its state changed."""

    root: Path
    _known: dict[str, tuple[State, str]] = field(default_factory=dict)

    def of(self, files: Mapping[str, State]) -> Mapping[str, str]:
        """Of the files that can be read, by path. Raises `WorkspaceError` when there is too much to read."""
        new = {path: state for path, state in files.items() if self._known.get(path, (None, ""))[0] != state}
        if sum(state.size for state in new.values()) > MAX_HASHED_BYTES:
            limit = MAX_HASHED_BYTES // 1024**2
            raise WorkspaceError("too_large", f"More than {limit:,} MB of files are new in the workspace.")
        for path, state in new.items():
            self._known[path] = (state, self._hash(path))
        self._known = {path: self._known[path] for path in files}
        return {path: sha256 for path, (_, sha256) in self._known.items() if sha256}

    def _hash(self, path: str) -> str:
        digest = hashlib.sha256()
        with suppress(OSError, WorkspaceError), open_file(self.root, WorkspacePath.parse(path)) as file:
            if mostly_holes(file, os.fstat(file)):
                return ""
            while chunk := os.read(file, _CHUNK):
                digest.update(chunk)
            return digest.hexdigest()
        return ""


def _files(root: str, folder: str, without: Collection[str]) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [folder]
    while waiting:
        inside = waiting.pop()
        with suppress(OSError), os.scandir(os.path.join(root, inside)) as entries:
            for entry in entries:
                path = f"{inside}/{entry.name}" if inside else entry.name
                if path in without:
                    continue
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append(path)
                elif stat.S_ISREG(status.st_mode):
                    yield path, status

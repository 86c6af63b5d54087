"""All files of a workspace at a moment, to tell afterwards what changed."""

import hashlib
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gateway.workspace.descent import open_file
from gateway.workspace.measure import mostly_holes
from gateway.workspace.paths import WorkspaceError, WorkspacePath

MAX_FILES = 50_000
MAX_HASHED_BYTES = 1024**3
_CHUNK = 1024 * 1024


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


def snapshot(root: Path, without: Collection[str]) -> Mapping[str, State]:
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

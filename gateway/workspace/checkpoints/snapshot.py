"""Reads the whole workspace; skips files that have not changed since they were last read."""

import os
import stat
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from struct import Struct
from typing import NamedTuple, TypeAlias

from dulwich.objects import Blob, ObjectID

from gateway.workspace.files.access import READ_FLAGS, TEMPORARY_PREFIX
from gateway.workspace.files.disk import UNREADABLE, FileState, FoundFile, mostly_holes, walk
from gateway.workspace.files.index import load_records, save_records
from gateway.workspace.files.paths import READ_ONLY

MAX_FILE_BYTES = 100 * 1024**2
MAX_NEW_BYTES = 1024**3
MAX_SECONDS = 30.0
"""Of reading for one checkpoint; the next one goes on from there."""
MAX_DEPTH = 200
"""Levels of folders; each needs an open descriptor."""

_KNOWN = "known-files"
_RECORD = Struct(f"<{len(FileState.NEVER)}sI40s")
"""The state of a file, its Git mode and the id of its content."""


class CheckpointEntry(NamedTuple):
    """A file or link of a checkpoint: its Git mode, and the id of its content."""

    mode: int
    id: ObjectID


Files: TypeAlias = dict[str, tuple[CheckpointEntry, FileState]]


class _Skipped(Exception):
    """A file cannot be stored in a checkpoint; the text is the reason."""


class _Later(Exception):
    """A file is left to the next checkpoint."""


def take_snapshot(root: Path, known: Files, put: Callable[[Blob], None]) -> tuple[Files, Counter[str]]:
    """Every file and link by path, and the count of skipped ones by reason; passes content not `known` to `put`.

    What could be read before and cannot be now stays as it is known.
    """
    reader, skipped, files = _Reader(known, put), Counter[str](), Files()

    def failed(path: str, why: str) -> None:
        skipped[why] += 1
        if path in known:
            files[path] = known[path][0], FileState.NEVER

    for found in walk(root.resolve(strict=True), excluded, failed, MAX_DEPTH):
        try:
            files[found.path] = reader.seen(found)
        except _Skipped as reason:
            skipped[str(reason)] += 1
        except FileNotFoundError:
            continue
        except _Later as reason:
            failed(found.path, str(reason))
        except OSError:
            failed(found.path, UNREADABLE)
    return files, skipped


def excluded(parts: tuple[str, ...]) -> bool:
    """Whether checkpoints exclude this path: the gateway's own folders, and half-written files."""
    return parts[0].casefold() in READ_ONLY or parts[-1].startswith(TEMPORARY_PREFIX)


def load_known(folder: Path, head: ObjectID) -> Files:
    """The files as read for `head`; empty if that isn't recorded, for it is only a cache."""
    files = Files()
    for path, record in load_records(folder / _KNOWN, head.decode()).items():
        state, mode, id = _RECORD.unpack(record)
        files[path] = CheckpointEntry(mode, ObjectID(id)), FileState(state)
    return files


def save_known(folder: Path, head: ObjectID, files: Files, began_ns: int) -> None:
    """Record the files of `head`, from a snapshot begun at `began_ns`."""
    records = {
        path: _RECORD.pack(state if state.settled(began_ns) else FileState.NEVER, *entry)
        for path, (entry, state) in files.items()
    }
    save_records(folder / _KNOWN, head.decode(), records)
    (folder / "known-files.json").unlink(missing_ok=True)  # of older versions; it has names of files, too


class _Reader:
    """Reads what is not known, as much as one checkpoint may."""

    def __init__(self, known: Files, put: Callable[[Blob], None]) -> None:
        self._known = known
        self._put = put
        self._linked: dict[FileState, CheckpointEntry] = {}
        self._left, self._until = MAX_NEW_BYTES, time.monotonic() + MAX_SECONDS

    def seen(self, found: FoundFile) -> tuple[CheckpointEntry, FileState]:
        """The file's entry; raises `_Skipped`, `_Later` and `OSError`."""
        # The state is older than the content: a change while reading is noticed next time.
        state = FileState.of(found.status)
        if found.path in self._known and self._known[found.path][1] == state:
            return self._known[found.path]
        if state not in self._linked:
            entry = self._read(found.folder, found.name, found.status)
            if found.status.st_nlink == 1:
                return entry, state
            self._linked[state] = entry
        return self._linked[state], state

    def _read(self, folder: int, name: str, status: os.stat_result) -> CheckpointEntry:
        if stat.S_ISLNK(status.st_mode):
            mode, data = stat.S_IFLNK, os.fsencode(os.readlink(name, dir_fd=folder))
        elif stat.S_ISREG(status.st_mode):
            if self._left < min(status.st_size, MAX_FILE_BYTES) or time.monotonic() > self._until:
                raise _Later("left for the next checkpoint")
            mode, data = stat.S_IFREG | (0o755 if status.st_mode & stat.S_IXUSR else 0o644), _content(folder, name)
            self._left -= len(data)
        else:
            raise _Skipped("not a file")
        blob = Blob.from_string(data)
        self._put(blob)
        return CheckpointEntry(mode, blob.id)


def _content(folder: int, name: str) -> bytes:
    with open(os.open(name, READ_FLAGS, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _Skipped("not a file")
        if status.st_size > MAX_FILE_BYTES:
            raise _Skipped("too large")
        if mostly_holes(file.fileno(), status):
            raise _Skipped("mostly holes")
        return file.read(status.st_size)

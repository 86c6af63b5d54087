"""Reads the whole workspace; skips files that have not changed since they were last read."""

import json
import os
import stat
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from dulwich.objects import Blob, ObjectID

from gateway.config.data.files import read_regular, replace_regular
from gateway.workspace.files.access import READ_FLAGS, TEMPORARY_PREFIX
from gateway.workspace.files.paths import READ_ONLY
from gateway.workspace.files.states import mostly_holes

MAX_FILE_BYTES = 100 * 1024**2
MAX_NEW_BYTES = 1024**3
MAX_SECONDS = 30.0
"""Of reading for one checkpoint; the next one goes on from there."""
MAX_DEPTH = 200
"""Every level of folders needs an open descriptor."""

UNSETTLED_NS = 2_000_000_000
"""A file modified this shortly before reading may change again without a change of its timestamps."""

_KNOWN = "known-files.json"
NEVER = (0,)
"""The stamp of a file that has to be read again."""


Stamp: TypeAlias = tuple[int, ...]
"""Changes whenever a file changes: ctime, mtime, size, inode."""


class CheckpointEntry(NamedTuple):
    """A file or link of a checkpoint: its Git mode, and the id of its content."""

    mode: int
    id: ObjectID


Files: TypeAlias = dict[str, tuple[CheckpointEntry, Stamp]]


class _Skipped(Exception):
    """A file cannot be stored in a checkpoint; the text is the reason."""


class _Later(Exception):
    """A file is left to the next checkpoint."""


def take_snapshot(root: Path, known: Files, put: Callable[[Blob], None]) -> tuple[Files, Counter[str]]:
    """Every file and link by path, and the count of skipped ones by reason; passes content not `known` to `put`.

    What could be read before and cannot be now stays as it is known.
    """
    root, reader, skipped = root.resolve(strict=True), _Reader(known, put), Counter[str]()
    files = Files()
    for path, folders, names, handle in os.fwalk(root, onerror=lambda _: skipped.update(["unreadable"])):
        parts = Path(path).relative_to(root).parts
        folders[:] = [name for name in folders if not excluded((*parts, name))]
        for name in [*folders, *(name for name in names if not excluded((*parts, name)))]:
            place = "/".join((*parts, name))
            try:
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    files[place] = reader.seen(handle, name, status, place)
            except _Skipped as reason:
                skipped[str(reason)] += 1
            except FileNotFoundError:
                continue
            except (OSError, _Later) as reason:
                skipped[str(reason) if isinstance(reason, _Later) else "unreadable"] += 1
                if place in known:
                    files[place] = known[place][0], NEVER
        if len(parts) >= MAX_DEPTH:
            skipped["too deep"] += len(folders)
            folders.clear()
    return files, skipped


def excluded(parts: tuple[str, ...]) -> bool:
    """Whether checkpoints exclude this path: the gateway's own folders, and half-written files."""
    return parts[0].casefold() in READ_ONLY or parts[-1].startswith(TEMPORARY_PREFIX)


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file's status."""
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino


def load_known(folder: Path, head: ObjectID) -> Files | None:
    """The files as read for `head`, if recorded: it is only a cache."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        files = json.loads(read_regular(folder / _KNOWN, MAX_FILE_BYTES))[head.decode()]
        return {
            path: (CheckpointEntry(mode, ObjectID(id.encode())), tuple(stamp))
            for path, (mode, id, stamp) in files.items()
        }
    return None


def save_known(folder: Path, head: ObjectID, files: Files, began: int) -> None:
    """Record the files of `head`, from a snapshot begun at `began`."""
    sure = began - UNSETTLED_NS
    known = {
        path: (entry.mode, entry.id.decode(), stamp if stamp[0] < sure else NEVER)
        for path, (entry, stamp) in files.items()
    }
    replace_regular(folder / _KNOWN, json.dumps({head.decode(): known}).encode())


class _Reader:
    """Reads what is not known, as much as one checkpoint may."""

    def __init__(self, known: Files, put: Callable[[Blob], None]) -> None:
        self._known = known
        self._put = put
        self._linked: dict[Stamp, CheckpointEntry] = {}
        self._left, self._until = MAX_NEW_BYTES, time.monotonic() + MAX_SECONDS

    def seen(self, folder: int, name: str, status: os.stat_result, place: str) -> tuple[CheckpointEntry, Stamp]:
        """The file's entry; raises `_Skipped`, `_Later` and `OSError`."""
        # The stamp is older than the content: a change while reading is noticed next time.
        stamp = stamp_of(status)
        if place in self._known and self._known[place][1] == stamp:
            return self._known[place]
        if stamp not in self._linked:
            entry = self._read(folder, name, status)
            if status.st_nlink == 1:
                return entry, stamp
            self._linked[stamp] = entry
        return self._linked[stamp], stamp

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

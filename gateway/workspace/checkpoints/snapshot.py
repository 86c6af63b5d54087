"""Reads the whole workspace; skips files that have not changed since they were last read."""

import json
import os
import stat
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

from dulwich.objects import Blob, ObjectID

from gateway.workspace.atomic import TEMPORARY
from gateway.workspace.descent import READ
from gateway.workspace.paths import READ_ONLY

MAX_FILE_BYTES = 100 * 1024**2
MAX_DEPTH = 200
"""Every level of folders needs an open descriptor."""

UNSETTLED_NS = 2_000_000_000
"""A file modified this shortly before reading may change again without a change of its timestamps."""

_KNOWN = "known-files.json"


Stamp: TypeAlias = tuple[int, ...]
"""Changes whenever a file changes: ctime, mtime, size, inode."""


class Entry(NamedTuple):
    """A file or link of a checkpoint: its Git mode, and the id of its content."""

    mode: int
    id: ObjectID


Files: TypeAlias = dict[str, tuple[Entry, Stamp]]


class _Skipped(Exception):
    """A file cannot be stored in a checkpoint; the text is the reason."""


def take_snapshot(root: Path, known: Files, put: Callable[[Blob], None]) -> tuple[Files, Counter[str]]:
    """Every file and link by path, and the count of skipped ones by reason; passes content not `known` to `put`."""
    root, files, skipped = root.resolve(strict=True), Files(), Counter[str]()
    for path, folders, names, handle in os.fwalk(root, onerror=lambda _: skipped.update(["unreadable"])):
        parts = Path(path).relative_to(root).parts
        folders[:] = [name for name in folders if not excluded((*parts, name))]
        for name in [*folders, *(name for name in names if not excluded((*parts, name)))]:
            place = "/".join((*parts, name))
            try:
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if not stat.S_ISDIR(status.st_mode):
                    files[place] = _seen(handle, name, status, known.get(place), put)
            except _Skipped as reason:
                skipped[str(reason)] += 1
            except FileNotFoundError:
                continue
            except OSError:
                skipped["unreadable"] += 1
        if len(parts) >= MAX_DEPTH:
            skipped["too deep"] += len(folders)
            folders.clear()
    return files, skipped


def excluded(parts: tuple[str, ...]) -> bool:
    """Whether checkpoints exclude this path: the gateway's own folders, and half-written files."""
    return parts[0].casefold() in READ_ONLY or parts[-1].startswith(TEMPORARY)


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file's status."""
    return status.st_ctime_ns, status.st_mtime_ns, status.st_size, status.st_ino


def load_known(folder: Path, head: ObjectID) -> Files:
    """The files as read for `head`, if recorded; empty otherwise: it is only a cache."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        files = json.loads((folder / _KNOWN).read_bytes())[head.decode()]
        return {path: (Entry(mode, ObjectID(id.encode())), tuple(stamp)) for path, (mode, id, stamp) in files.items()}
    return {}


def save_known(folder: Path, head: ObjectID, files: Files, began: int) -> None:
    """Record the files of `head`, from a snapshot begun at `began`."""
    old = {path: seen for path, seen in files.items() if seen[1][0] < began - UNSETTLED_NS}
    known = {path: (entry.mode, entry.id.decode(), stamp) for path, (entry, stamp) in old.items()}
    draft = folder / f"{_KNOWN}.new"
    draft.write_text(json.dumps({head.decode(): known}))
    draft.replace(folder / _KNOWN)


def _seen(
    folder: int, name: str, status: os.stat_result, known: tuple[Entry, Stamp] | None, put: Callable[[Blob], None]
) -> tuple[Entry, Stamp]:
    if known is not None and known[1] == stamp_of(status):
        return known
    if stat.S_ISLNK(status.st_mode):
        mode, data = stat.S_IFLNK, os.fsencode(os.readlink(name, dir_fd=folder))
    elif stat.S_ISREG(status.st_mode):
        mode, data = stat.S_IFREG | (0o755 if status.st_mode & stat.S_IXUSR else 0o644), _content(folder, name)
    else:
        raise _Skipped("not a file")
    blob = Blob.from_string(data)
    put(blob)
    # The stamp is older than the content: a change while reading is noticed next time.
    return Entry(mode, blob.id), stamp_of(status)


def _content(folder: int, name: str) -> bytes:
    with open(os.open(name, READ, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _Skipped("not a file")
        if status.st_size > MAX_FILE_BYTES:
            raise _Skipped("too large")
        return file.read(status.st_size)

"""Reading the whole workspace into Git objects; a file that is as it was when it was last read is not read again."""

import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from dulwich.objects import Blob, ObjectID, ShaFile, Tree

from gateway.workspace.atomic import TEMPORARY
from gateway.workspace.descent import open_folder
from gateway.workspace.paths import READ_ONLY

MAX_FILE_BYTES = 100 * 1024 * 1024
MAX_DEPTH = 200
"""Every level of folders costs an open descriptor."""

RACY_NS = 2_000_000_000
"""A file younger than this when it was read may change again without its times changing."""

_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

Stamp: TypeAlias = tuple[int, int, int, int, int]
"""What changes with a file: times of content and of attributes, size, inode, mode."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or link of a checkpoint: its kind and permissions, and the object that holds its content."""

    mode: int
    id: ObjectID


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as it was found; a `settled` one keeps its content as long as it keeps its stamp."""

    stamp: Stamp
    entry: Entry
    settled: bool


Known: TypeAlias = dict[str, Seen]


@dataclass(slots=True)
class Snapshot:
    """Everything of a workspace that checkpoints keep, by path; what was left out is counted by reason."""

    seen: Known = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    tree: ObjectID = field(default_factory=lambda: Tree().id)

    @property
    def entries(self) -> dict[str, Entry]:
        """Path and content."""
        return {path: seen.entry for path, seen in self.seen.items()}


def left_out(name: str, *, top: bool) -> bool:
    """Whether checkpoints have nothing of this name: the gateway's own folders, half-written files, Git's folders."""
    return name.startswith(TEMPORARY) or name.casefold() == ".git" or (top and name.casefold() in READ_ONLY)


def stamp_of(status: os.stat_result) -> Stamp:
    """How a change of the file shows."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino, status.st_mode


def take(root: Path, known: Known, put: Callable[[ShaFile], None]) -> Snapshot:
    """Read what is not `known`; every folder and every content that was read goes to `put`, contents first."""
    snapshot = Snapshot()
    with open_folder(root, ()) as folder:
        tree = _Reader(known, put, snapshot).folder(folder, "", 0)
    put(tree)
    snapshot.tree = tree.id
    return snapshot


class _LeftOut(Exception):
    """A file that no checkpoint can keep; the text is why, and there is none for one that is gone."""


class _Reader:
    def __init__(self, known: Known, put: Callable[[ShaFile], None], snapshot: Snapshot) -> None:
        self._known = known
        self._put = put
        self._snapshot = snapshot

    def folder(self, folder: int, prefix: str, depth: int) -> Tree:
        tree = Tree()
        with os.scandir(folder) as found:
            names = sorted(item.name for item in found)
        for name in names:
            if left_out(name, top=depth == 0):
                continue
            try:
                entry = self._entry(folder, name, f"{prefix}{name}", depth)
            except _LeftOut as reason:
                self._snapshot.skipped.update(reason.args)
                continue
            if entry is not None:
                tree.add(os.fsencode(name), entry.mode, entry.id)
        return tree

    def _entry(self, folder: int, name: str, path: str, depth: int) -> Entry | None:
        with _readable():
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            return self._below(folder, name, path, depth)
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            raise _LeftOut("not a file")
        known = self._known.get(path)
        if known is None or not known.settled or known.stamp != stamp_of(status):
            known = self._read(folder, name, link=stat.S_ISLNK(status.st_mode))
        self._snapshot.seen[path] = known
        return known.entry

    def _below(self, folder: int, name: str, path: str, depth: int) -> Entry | None:
        if depth >= MAX_DEPTH:
            raise _LeftOut("too deep")
        with _readable():
            below = os.open(name, _FOLDER, dir_fd=folder)
        try:
            tree = self.folder(below, f"{path}/", depth + 1)
        finally:
            os.close(below)
        if not len(tree):
            return None
        self._put(tree)
        return Entry(stat.S_IFDIR, tree.id)

    def _read(self, folder: int, name: str, *, link: bool) -> Seen:
        with _readable():
            data, before, after = _link(folder, name) if link else _file(folder, name)
        blob = Blob.from_string(data)
        self._put(blob)
        mode = stat.S_IFLNK if link else stat.S_IFREG | (after.st_mode & 0o777)
        return Seen(stamp_of(after), Entry(mode, blob.id), stamp_of(before) == stamp_of(after) and _old(after))


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise _LeftOut from None
    except OSError as error:
        raise _LeftOut("unreadable") from error


def _link(folder: int, name: str) -> tuple[bytes, os.stat_result, os.stat_result]:
    before = os.stat(name, dir_fd=folder, follow_symlinks=False)
    target = os.fsencode(os.readlink(name, dir_fd=folder))
    return target, before, os.stat(name, dir_fd=folder, follow_symlinks=False)


def _file(folder: int, name: str) -> tuple[bytes, os.stat_result, os.stat_result]:
    file = os.open(name, _FILE, dir_fd=folder)
    try:
        before = os.fstat(file)
        if not stat.S_ISREG(before.st_mode):
            raise _LeftOut("not a file")
        return _bytes(file, before.st_size), before, os.fstat(file)
    finally:
        os.close(file)


def _bytes(file: int, size: int) -> bytes:
    """The file from its start, as far as it goes now, but never more than may be kept."""
    if size > MAX_FILE_BYTES:
        raise _LeftOut("too large")
    chunks, room = [], MAX_FILE_BYTES
    while room > 0 and (chunk := os.read(file, min(room, 1 << 20))):
        chunks.append(chunk)
        room -= len(chunk)
    return b"".join(chunks)


def _old(status: os.stat_result) -> bool:
    return time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > RACY_NS

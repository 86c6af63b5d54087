"""An index of the hashes of files, which saves reading what has not changed, also over a restart.

It says what a program changed, what to synchronise, and what a command must not see. Labels of what is read, locks,
approvals, pins and vouching hash the bytes themselves (`disk.measure`).
"""

import hashlib
import mmap
import os
import stat
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import structlog

from gateway.config.data.files import read_regular, replace_regular
from gateway.domain.files import FileContent
from gateway.workspace.files.access import explained_errors, open_file
from gateway.workspace.files.disk import TOO_DEEP, FileState, Skipped, read_digest, walk
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath

log = structlog.get_logger(__name__)

MAX_FILES = 1_000_000


@dataclass(frozen=True, slots=True)
class Changes:
    """Paths, sorted."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    deleted: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The states of all regular files by path; not `whole` if there are others, which a program could make readable."""

    files: Mapping[str, FileState]
    whole: bool

    def changes(self, after: "Snapshot") -> Changes:
        """The files that are new, changed or deleted in a later snapshot."""
        was, now = self.files, after.files
        return Changes(
            tuple(sorted(now.keys() - was.keys())),
            tuple(sorted(path for path in now.keys() & was.keys() if now[path] != was[path])),
            tuple(sorted(was.keys() - now.keys())),
        )


class Stopped(Exception):
    """Nobody waits for the look any more; what was read by then is remembered."""


LONG_LOOK_FILES, LONG_LOOK_BYTES = 20_000, 256 * 1024**2
"""A look that reads more than one of these tells how far it is."""
PROGRESS_SECONDS = 10.0
SAVE_SECONDS = 60.0
INDEX_FOLDER = "file-index"
"""In the data folder: what is known of each workspace."""


class _Hashed(NamedTuple):
    path: str
    state: FileState
    size: int
    sha256: bytes
    """Empty for a file that can't be read."""


@dataclass(slots=True)
class FileIndex:
    """The hashes of the files below `root`; each is computed again when the file has another state.

    With a `file`, which no tool and no member may be able to write, they survive a restart; a lost or damaged one costs
    time. Every method blocks, and may be called from any thread.

    A hash is that of bytes that the file had in its state. A program of the agent may change them afterwards, through a
    mapping that it made before. So what it touched is dropped once it has ended (`forget`), or everything if the file
    system doesn't note the beginning of such a write (`tells_changes`); nothing is saved while one runs.
    """

    root: Path
    file: Path | None = None
    programs: int = 0
    """Programs of the agent that may write now."""
    progress: str = field(default="", init=False)
    """How far a long look is, for people; "" if there is none."""
    complete: bool = field(default=False, init=False)
    """Whether a look has ended since the start."""
    _known: dict[str, bytes] = field(default_factory=dict, init=False)
    """The state and the hash by path."""
    _forgotten: int = field(default=0, init=False)
    _unsaved: int = field(default=0, init=False)
    _saved_at: float = field(default_factory=time.monotonic, init=False)
    _notes_mappings: bool | None = field(default=None, init=False)
    _looking: threading.Lock = field(default_factory=threading.Lock, init=False)
    _changing: threading.Lock = field(default_factory=threading.Lock, init=False)

    def snapshot(self, skipped: Skipped) -> Snapshot:
        """The state of each regular file. Raises `WorkspaceError`, with code `too_many` beyond `MAX_FILES`."""
        found, whole = dict[str, FileState](), True

        def failed(path: str, why: str) -> None:
            nonlocal whole
            with suppress(FileNotFoundError):
                whole &= why != TOO_DEEP and os.lstat(self.root / path).st_uid != os.geteuid()

        with explained_errors(WorkspacePath(())):
            for each in walk(self.root, skipped, failed):
                if stat.S_ISREG(each.status.st_mode):
                    found[each.path] = FileState.of(each.status)
                if len(found) > MAX_FILES:
                    raise WorkspaceError("too_many", f"There are more than {MAX_FILES:,} files; remove some first.")
        with self._changing:
            for path in self._known.keys() - found.keys():
                parts = tuple(path.split("/"))
                if not any(skipped(parts[:depth]) for depth in range(1, len(parts) + 1)):
                    del self._known[path]
        return Snapshot(found, whole)

    def hashes(self, files: Mapping[str, FileState], stop: threading.Event | None = None) -> dict[str, str]:
        """The hash of each file by path, "" for one that can't be read; without those that are gone.

        A large file that is mostly holes is hashed by its data and where that is. Raises `Stopped` if `stop` is set.
        """
        return {each.path: each.sha256.hex() for each in self._hashed(files, stop)}

    def contents(self, files: Mapping[str, FileState]) -> dict[str, FileContent | None]:
        """The same as contents, None for a file that can't be read; not for files that are mostly holes."""
        return {
            path: FileContent(sha256.hex(), size, state.executable) if sha256 else None
            for path, state, size, sha256 in self._hashed(files)
        }

    def forget(self, paths: Iterable[str] | None) -> None:
        """Drop the hashes of what a program that has ended may have changed; None: of all files."""
        with self._changing:
            self._forgotten += 1
            for path in tuple(self._known) if paths is None else paths:
                self._known.pop(path, None)

    def tells_changes(self) -> bool:
        """Whether the file system gives a file another state for whatever a program does to it."""
        if self._notes_mappings is None:
            self._notes_mappings = notes_mappings(self.root)
        return self._notes_mappings

    def save(self, *, due: bool = False) -> None:
        """Bring what is known to disk, unless a program runs; with `due` at most once in `SAVE_SECONDS`."""
        if self.file is None or (due and time.monotonic() - self._saved_at < SAVE_SECONDS) or not self.tells_changes():
            return
        with self._changing:
            if self.programs or not self._unsaved:
                return
            known, self._unsaved, self._saved_at = self._known.copy(), 0, time.monotonic()
        try:
            save_records(self.file, str(self.root), known)
        except OSError as error:
            log.warning("files.index_not_saved", error=error.strerror, effect="files are read again after a restart")

    def _hashed(self, files: Mapping[str, FileState], stop: threading.Event | None = None) -> Iterator[_Hashed]:
        with self._looking:  # two at once would read the same files
            self._load()
            known = {path: self._known.get(path, b"") for path in files}
            new = [path for path, state in files.items() if not known[path].startswith(state)]
            for path in files.keys() - set(new):
                yield _Hashed(path, files[path], files[path].size, known[path][len(FileState.NEVER) :])
            yield from self._read(new, files, stop)
            self.complete = True
        self.save(due=True)

    def _read(
        self, paths: list[str], files: Mapping[str, FileState], stop: threading.Event | None
    ) -> Iterator[_Hashed]:
        """Read the files, and remember them one by one."""
        total, done, began = sum(files[path].size for path in paths), 0, time.monotonic()
        long, told_at = len(paths) > LONG_LOOK_FILES or total > LONG_LOOK_BYTES, began - PROGRESS_SECONDS
        try:
            for number, path in enumerate(paths):
                if stop is not None and stop.is_set():
                    raise Stopped
                if long and time.monotonic() >= told_at + PROGRESS_SECONDS:
                    told_at, percent = time.monotonic(), 100 * done // max(1, total)
                    self.progress = f"reading {len(paths):,} new files, {percent} % of {total >> 20:,} MB done"
                    log.info("files.reading", files=number, of=len(paths), percent=percent)
                    self.save(due=True)
                yield from self._look(path)
                done += files[path].size
        finally:
            self.progress = ""
        if long:
            log.info("files.read", files=len(paths), mb=total >> 20, seconds=round(time.monotonic() - began, 1))

    def _look(self, path: str) -> Iterator[_Hashed]:
        """Yield the file as it is now, unless it is gone."""
        began, forgotten = time.time_ns(), self._forgotten
        try:
            with open_file(self.root, WorkspacePath(tuple(path.split("/")))) as file:
                status = os.fstat(file)  # older than the content: a change while it is read is noticed next time
                size, sha256 = read_digest(file, status)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError, WorkspaceError):
            return
        except OSError:
            yield _Hashed(path, FileState.NEVER, 0, b"")
            return
        state = FileState.of(status)
        with self._changing:
            if state.settled(began) and forgotten == self._forgotten:
                self._known[path] = state + sha256
                self._unsaved += 1
        yield _Hashed(path, state, size, sha256)

    def _load(self) -> None:
        if self.complete or self._known or self.file is None or not self.tells_changes():
            return
        known, size = load_records(self.file, str(self.root)), len(FileState.NEVER) + _DIGEST_BYTES
        with self._changing:
            self._known = {path: record for path, record in known.items() if len(record) == size}


def notes_mappings(folder: Path) -> bool:
    """Whether a file of this file system gets another state when a program begins to write through a mapping."""
    with suppress(OSError, ValueError), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(bytes(mmap.PAGESIZE))
        before = FileState.of(os.fstat(file.fileno()))
        time.sleep(_TICK_SECONDS)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as mapping:
            mapping[0] += 1  # read first: tmpfs notes a write only to a page that was not in the mapping before
            return FileState.of(os.fstat(file.fileno())) != before
    return False


_TICK_SECONDS = 0.05
"""Longer than the step of the clock that file systems take their times from."""


_DIGEST_BYTES = hashlib.sha256().digest_size
MAX_INDEX_BYTES = 1024**3
_HEADER = b"supaclaw files 1\n"
_LENGTHS = Struct("<II")


def save_records(file: Path, of: str, records: Mapping[str, bytes]) -> None:
    """Save what is known of files by path; `of` names what they were at that time. Raises `OSError`."""
    parts = list[bytes]()
    for path, record in ((f"/{of}", b""), *records.items()):
        name = os.fsencode(path)
        parts += _LENGTHS.pack(len(name), len(record)), name, record
    body = b"".join(parts)
    replace_regular(file, b"".join((_HEADER, hashlib.sha256(body).digest(), body)))


def load_records(file: Path, of: str) -> dict[str, bytes]:
    """The records saved under the same `of`; empty if there are none or the file is damaged."""
    with suppress(OSError):
        data = read_regular(file, MAX_INDEX_BYTES)
        body = memoryview(data)[(at := len(_HEADER) + _DIGEST_BYTES) :]
        if data[:at] == _HEADER + hashlib.sha256(body).digest():
            records = dict(_parsed(body))
            if records.pop(f"/{of}", None) == b"":
                return records
    return {}


def _parsed(body: memoryview) -> Iterator[tuple[str, bytes]]:
    at = 0
    while at < len(body):
        name, record = _LENGTHS.unpack_from(body, at)
        start = at + _LENGTHS.size + name
        yield os.fsdecode(bytes(body[start - name : start])), bytes(body[start : start + record])
        at = start + record

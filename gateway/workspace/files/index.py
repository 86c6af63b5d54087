"""The files below a folder as they are on disk: one walk, the state of a file, its hash, and an index of hashes.

The index saves reading what has not changed: it says what a program changed, what to synchronise, and what a command
must not see. Labels of what is read, locks, approvals, pins and vouching hash the bytes themselves (`measure`).
"""

import hashlib
import mmap
import os
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import ClassVar, NamedTuple, TypeAlias

import structlog

from gateway.config.data.files import read_regular, replace_regular
from gateway.domain.files import FileContent
from gateway.workspace.files.access import FOLDER_FLAGS, READ_FLAGS, explained_errors, open_file
from gateway.workspace.files.paths import MAX_LEVELS, WorkspaceError, WorkspacePath

log = structlog.get_logger(__name__)

MAX_FILES = 1_000_000
UNSETTLED_NS = 2_000_000_000
"""A file that changed this shortly before it was read may change again without a change of its timestamps."""
SPARSE_BYTES = 1024 * 1024
_CHUNK = 1024 * 1024

Skipped: TypeAlias = Callable[[tuple[str, ...]], bool]
"""Whether a file or folder, by the parts of its path, isn't looked at."""


@dataclass(frozen=True, slots=True)
class Written:
    """The file as written; `path` is normalised."""

    path: str
    size: int
    sha256: str


class FileState(bytes):
    """Changes with every write, even one that sets the time back: size, mtime, ctime, inode and mode of a file, packed.

    A write through a mapping of memory may change it only once, when it begins; on some file systems it never does.
    """

    __slots__ = ()
    NEVER: ClassVar["FileState"]
    """That of no file."""

    @classmethod
    def of(cls, status: os.stat_result) -> "FileState":
        """The state that a file's status tells."""
        times = status.st_mtime_ns, status.st_ctime_ns
        return cls(_STATE.pack(status.st_size, *times, status.st_ino, status.st_mode))

    @property
    def size(self) -> int:
        """Bytes."""
        return int(_STATE.unpack(self)[0])

    @property
    def modified_ns(self) -> int:
        """The mtime."""
        return int(_STATE.unpack(self)[1])

    @property
    def executable(self) -> bool:
        """Whether its owner may run it."""
        return bool(_STATE.unpack(self)[4] & stat.S_IXUSR)

    def settled(self, at_ns: int) -> bool:
        """Whether any write after `at_ns`, when the file was read, gives it another state."""
        return int(_STATE.unpack(self)[2]) < at_ns - UNSETTLED_NS


_STATE = Struct("<qqqQI")
FileState.NEVER = FileState(_STATE.size)

UNREADABLE, TOO_DEEP = "unreadable", "too deep"


class FoundFile(NamedTuple):
    """A file that a walk found; `folder` is the open folder that it is in, until the walk goes on."""

    path: str
    status: os.stat_result
    folder: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


def walk(
    root: Path, skipped: Skipped, failed: Callable[[str, str], None], levels: int = MAX_LEVELS
) -> Iterator[FoundFile]:
    """Yield what lies below `root` and isn't a folder, by name, a folder's own files first; no link is followed.

    `failed` is called with the path of a folder or file that can't be looked at, and why. Raises `OSError` if that is
    `root`. Each level of folders takes a descriptor.
    """
    open_folders: list[tuple[int, tuple[str, ...], list[str]]] = []

    def enter(folder: int, parts: tuple[str, ...]) -> Iterator[FoundFile]:
        folders = list[str]()
        open_folders.append((folder, parts, folders))
        with os.scandir(folder) as entries:
            for entry in sorted(entries, key=attrgetter("name")):
                place = (*parts, entry.name)
                if skipped(place):
                    continue
                path = "/".join(place)
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                except OSError:
                    failed(path, UNREADABLE)
                    continue
                if stat.S_ISDIR(status.st_mode):
                    folders.append(entry.name)
                else:
                    yield FoundFile(path, status, folder)
        folders.reverse()

    try:
        yield from enter(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC), ())
        while open_folders:
            folder, parts, waiting = open_folders[-1]
            if not waiting:
                os.close(open_folders.pop()[0])
                continue
            place = (*parts, waiting.pop())
            if len(place) > levels:
                failed("/".join(place), TOO_DEEP)
                continue
            try:
                below = os.open(place[-1], FOLDER_FLAGS, dir_fd=folder)
            except FileNotFoundError:
                continue
            except OSError:
                failed("/".join(place), UNREADABLE)
                continue
            yield from enter(below, place)
    finally:
        for folder, _, _ in open_folders:
            os.close(folder)


def hash_file(file: int, most: int, path: WorkspacePath) -> tuple[int, str]:
    """The size and hash of an open file; raises `WorkspaceError` with code `too_large` for more than `most` bytes."""
    digest, size = hashlib.sha256(), 0
    _check(os.fstat(file).st_size, most, path)
    while chunk := os.pread(file, _CHUNK, size):
        digest.update(chunk)
        size += len(chunk)
        _check(size, most, path)
    return size, digest.hexdigest()


def measure(root: Path, path: str, most: int) -> Written:
    """Size and hash of a file. Raises `WorkspaceError`, with code `too_large` for more than `most` bytes."""
    where = WorkspacePath.parse(path)
    with explained_errors(where), open_file(root, where) as file:
        return Written(str(where), *hash_file(file, most, where))


def _check(size: int, most: int, path: WorkspacePath) -> None:
    if size > most:
        raise WorkspaceError("too_large", f"{path} has {size / 1e6:.1f} MB; the limit is {most / 1e6:g} MB.")


def mostly_holes(file: int, status: os.stat_result) -> bool:
    """Whether most of a large file is nowhere on disk: it takes no room, and reading it gives zeros for hours."""
    if status.st_size < SPARSE_BYTES or status.st_blocks * 1024 > status.st_size:
        return False
    return sum(end - start for start, end in _extents(file)) * 2 < status.st_size


def holes_in(found: FoundFile) -> bool:
    """The same for a file of a walk; one that can't be read has none."""
    if found.status.st_size < SPARSE_BYTES or found.status.st_blocks * 1024 > found.status.st_size:
        return False
    with suppress(OSError), open(os.open(found.name, READ_FLAGS, dir_fd=found.folder), "rb") as file:
        return mostly_holes(file.fileno(), found.status)
    return False


def _extents(file: int) -> Iterator[tuple[int, int]]:
    """Yield where a file has data: from one byte up to, but without, another."""
    end = 0
    with suppress(OSError):  # there is no data beyond
        while True:
            start = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, start, os.SEEK_HOLE)
            yield start, end


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
        """What happened between this one and a later one."""
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
        recent = due and time.monotonic() - self._saved_at < SAVE_SECONDS
        if self.file is None or recent or not self.tells_changes():
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
                yield _Hashed(path, files[path], files[path].size, known[path][_STATE.size :])
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
                size, sha256 = _digest(file, status)
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
        known = load_records(self.file, str(self.root))
        with self._changing:
            self._known = {path: record for path, record in known.items() if len(record) == _STATE.size + _DIGEST_BYTES}


_DIGEST_BYTES = hashlib.sha256().digest_size


def _digest(file: int, status: os.stat_result) -> tuple[int, bytes]:
    """The number of bytes that were read, or stand for holes, and the hash."""
    digest, size = hashlib.sha256(), 0
    if mostly_holes(file, status):
        digest.update(b"mostly holes, %d bytes" % status.st_size)
        for start, end in _extents(file):
            digest.update(b"\0data at %d to %d:" % (start, end))
            for at in range(start, end, _CHUNK):
                digest.update(os.pread(file, min(_CHUNK, end - at), at))
        return status.st_size, digest.digest()
    while chunk := os.pread(file, _CHUNK, size):
        digest.update(chunk)
        size += len(chunk)
    return size, digest.digest()


def notes_mappings(folder: Path) -> bool:
    """Whether a file of this file system gets another state when a program begins to write through a mapping."""
    with suppress(OSError, ValueError), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        file.write(bytes(mmap.PAGESIZE))
        before = FileState.of(os.fstat(file.fileno()))
        time.sleep(_TICK_SECONDS)
        with mmap.mmap(file.fileno(), mmap.PAGESIZE) as mapping:
            mapping[0] = 1
            return FileState.of(os.fstat(file.fileno())) != before
    return False


_TICK_SECONDS = 0.05
"""Longer than the step of the clock that file systems take their times from."""

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
    """What was saved under the same `of`; empty if there is nothing, or if it is damaged."""
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

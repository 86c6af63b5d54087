"""Files as they are on disk: the one walk, the state of a file, and its hash."""

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import ClassVar, NamedTuple, TypeAlias

from gateway.workspace.files.access import FOLDER_FLAGS, READ_FLAGS, explained_errors, open_file, open_folder
from gateway.workspace.files.paths import MAX_LEVELS, WorkspaceError, WorkspacePath

UNSETTLED_NS = 2_000_000_000
"""A file that changed this shortly before it was read may change again without a change of its timestamps."""
SPARSE_BYTES = 1024 * 1024
_CHUNK = 1024 * 1024

Skipped: TypeAlias = Callable[[tuple[str, ...]], bool]
"""Whether a file or folder, by the parts of its path, isn't looked at."""
Failed: TypeAlias = Callable[[str, str], None]
"""Takes the path of what can't be looked at, and why."""


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
        return cls(_STATE.pack(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, status.st_mode))

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


def walk(root: Path, skipped: Skipped, failed: Failed, levels: int = MAX_LEVELS) -> Iterator[FoundFile]:
    """Yield what lies below `root` and isn't a folder, by name, a folder's own files first; no link is followed.

    `failed` is called with the path of a folder or file that can't be looked at, and why. Raises `OSError` if that is
    `root`. Each level of folders takes a descriptor.
    """
    with open_folder(root, ()) as top:
        yield from _walk(top, (), skipped, failed, levels)


def _walk(folder: int, parts: tuple[str, ...], skipped: Skipped, failed: Failed, levels: int) -> Iterator[FoundFile]:
    folders = list[tuple[str, ...]]()
    for entry in sorted(os.scandir(folder), key=attrgetter("name")):
        place = (*parts, entry.name)
        if not skipped(place):
            try:
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(place)
                else:
                    yield FoundFile("/".join(place), status, folder)
            except FileNotFoundError:
                continue
            except OSError:
                failed("/".join(place), UNREADABLE)
    for place in folders:
        if len(place) > levels:
            failed("/".join(place), TOO_DEEP)
            continue
        try:
            below = os.open(place[-1], FOLDER_FLAGS, dir_fd=folder)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                failed("/".join(place), UNREADABLE)
            continue
        try:
            yield from _walk(below, place, skipped, failed, levels)
        finally:
            os.close(below)


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
    return _may_have_holes(status) and sum(end - start for start, end in _extents(file)) * 2 < status.st_size


def holes_in(found: FoundFile) -> bool:
    """The same for a file of a walk; one that can't be read has none."""
    if _may_have_holes(found.status):
        with suppress(OSError), open(os.open(found.name, READ_FLAGS, dir_fd=found.folder), "rb") as file:
            return mostly_holes(file.fileno(), found.status)
    return False


def _may_have_holes(status: os.stat_result) -> bool:
    return status.st_size >= SPARSE_BYTES and status.st_blocks * 1024 <= status.st_size


def _extents(file: int) -> Iterator[tuple[int, int]]:
    """Yield where a file has data: from one byte up to, but without, another."""
    end = 0
    with suppress(OSError):  # there is no data beyond
        while True:
            start = os.lseek(file, end, os.SEEK_DATA)
            end = os.lseek(file, start, os.SEEK_HOLE)
            yield start, end


def read_digest(file: int, status: os.stat_result) -> tuple[int, bytes]:
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

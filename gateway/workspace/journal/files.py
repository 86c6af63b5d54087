"""The journal on disk, one root a principal. Everything here blocks, and no link below a root is followed."""

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gateway.workspace.atomic import replace_file
from gateway.workspace.descent import open_file, open_folder, require_regular
from gateway.workspace.journal.names import DAY, SESSIONS, TIME, Seconds, filed_path, open_path
from gateway.workspace.paths import WorkspacePath

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = _APPEND | os.O_CREAT | os.O_EXCL


@dataclass(frozen=True, slots=True)
class Place:
    """A journal file, by its path below the file root of its principal; `fresh`: the database knows nothing of it."""

    root: Path
    path: str
    fresh: bool = field(default=False, compare=False)


def create(root: Path, seconds: Seconds, at: datetime) -> Place:
    """A new, empty file under the first free second from `at` on."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for second in seconds.free(root, at):
        place = Place(root, open_path(second), fresh=True)
        if not _exists(root, filed_path(second)) and _made(place):
            return place
    raise AssertionError("there is always a later second")


def append(place: Place, data: bytes) -> None:
    """Write at the end of a file that must be there; what cannot be written whole is taken back."""
    path = _path(place)
    with open_folder(place.root, path.parents) as folder:
        file = os.open(path.name, _APPEND, dir_fd=folder)
    try:
        status = os.fstat(file)
        require_regular(status, path)
        _write(file, data, status.st_size)
    finally:
        os.close(file)


def recreate(place: Place) -> None:
    """An empty file where one should be; one that is there stays."""
    place.root.mkdir(mode=0o700, parents=True, exist_ok=True)
    _made(place)


def read(place: Place) -> bytes | None:
    """The whole file; None when there is none."""
    try:
        with open_file(place.root, _path(place)) as file, open(file, "rb", closefd=False) as stream:
            return stream.read()
    except FileNotFoundError:
        return None


def replace(place: Place, data: bytes) -> None:
    """Put `data` in the file's place; on disk, its name too, when it returns."""
    recreate(place)
    path = _path(place)
    with open_folder(place.root, path.parents) as folder:
        replace_file(folder, path, data)
    _sync_folders(place)


def sync(place: Place) -> None:
    """Bring the file and the folders that lead to it to disk."""
    with open_file(place.root, _path(place)) as file:
        os.fsync(file)
    _sync_folders(place)


def remove(place: Place, *, size: int) -> bool:
    """Delete the file if it is still that long, and its day's folder if that is empty; whether it is gone."""
    path = _path(place)
    try:
        with open_folder(place.root, path.parents) as folder:
            if os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_size != size:
                return False
            os.unlink(path.name, dir_fd=folder)
            os.fsync(folder)
    except FileNotFoundError:
        return True
    with open_folder(place.root, path.parents[:-1]) as above, suppress(OSError):
        os.rmdir(path.parents[-1], dir_fd=above)
    return True


def sessions(root: Path, since: float) -> Iterator[Place]:
    """The session files below a root that were written since then; nothing is opened."""
    with suppress(FileNotFoundError), _listed(root, (SESSIONS,)) as days:
        for day in days:
            if DAY.fullmatch(day.name) and day.is_dir(follow_symlinks=False):
                yield from _of_day(root, day.name, since)


def _of_day(root: Path, day: str, since: float) -> Iterator[Place]:
    with suppress(FileNotFoundError), _listed(root, (SESSIONS, day)) as files:
        for file in files:
            if TIME.fullmatch(file.name) and _written_since(file, since):
                yield Place(root, f"{SESSIONS}/{day}/{file.name}")


def _written_since(file: "os.DirEntry[str]", since: float) -> bool:
    status = file.stat(follow_symlinks=False)
    return stat.S_ISREG(status.st_mode) and status.st_mtime >= since


@contextmanager
def _listed(root: Path, parts: tuple[str, ...]) -> "Iterator[os._ScandirIterator[str]]":
    with open_folder(root, parts) as folder, os.scandir(folder) as found:
        yield found


def _path(place: Place) -> WorkspacePath:
    return WorkspacePath(tuple(place.path.split("/")))


def _exists(root: Path, path: str) -> bool:
    parts = tuple(path.split("/"))
    try:
        with open_folder(root, parts[:-1]) as folder:
            os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _made(place: Place) -> bool:
    path = _path(place)
    _make_folders(place.root, path.parents)
    with open_folder(place.root, path.parents) as folder:
        try:
            os.close(os.open(path.name, _NEW, 0o600, dir_fd=folder))
        except FileExistsError:
            return False
    return True


def _make_folders(root: Path, parts: tuple[str, ...]) -> None:
    for depth, part in enumerate(parts):
        with open_folder(root, parts[:depth]) as above, suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=above)


def _write(file: int, data: bytes, size: int) -> None:
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        with suppress(OSError):
            os.ftruncate(file, size)
        raise


def _sync_folders(place: Place) -> None:
    parts = _path(place).parents
    for depth in range(len(parts) + 1):
        with open_folder(place.root, parts[:depth]) as folder:
            os.fsync(folder)

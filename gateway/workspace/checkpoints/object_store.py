"""The Git object store of the checkpoints: one writer at a time, and only whole packs, so that a crash tears nothing.

A bare repository: `git --git-dir` reads it. Order of a write: the pack, its index, then the branch, each on disk before
the next; what a crash leaves is a pack that nothing refers to, or files with names that the next write takes again.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dulwich.object_store import DiskObjectStore
from dulwich.objects import Commit, ObjectID, ShaFile, Tree

from gateway.domain.errors import OwnerMustAct, TryAgainLater

_BRANCH = "refs/heads/main"
_FILES = {"HEAD": f"ref: {_BRANCH}\n".encode(), "config": b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n"}
_LOOK_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """An open store; whoever has it holds its lock."""

    folder: Path
    objects: DiskObjectStore

    @property
    def packs(self) -> Path:
        """Where the packs lie."""
        return self.folder / "objects" / "pack"

    @property
    def head(self) -> ObjectID | None:
        """The newest checkpoint."""
        with suppress(FileNotFoundError):
            return ObjectID((self.folder / _BRANCH).read_bytes().strip())
        return None

    def move_head(self, commit: ObjectID) -> None:
        """Make `commit`, which is on disk with all it refers to, the newest checkpoint."""
        replace(self.folder / _BRANCH, commit + b"\n")

    def commit(self, id: ObjectID) -> Commit:
        """A checkpoint."""
        found = self._get(id)
        if not isinstance(found, Commit):
            raise self._damaged(id)
        return found

    def tree(self, id: ObjectID) -> Tree:
        """A folder of a checkpoint."""
        found = self._get(id)
        if not isinstance(found, Tree):
            raise self._damaged(id)
        return found

    def content(self, id: ObjectID) -> bytes:
        """What is in a file, or where a link leads."""
        return self._get(id).as_raw_string()

    def _get(self, id: ObjectID) -> ShaFile:
        try:
            return self.objects[id]
        except KeyError:
            raise self._damaged(id) from None

    def _damaged(self, id: ObjectID) -> OwnerMustAct:
        return OwnerMustAct(f"{self.folder} is damaged at {id.decode()}: restore it from a backup, or move it away")

    def history(self) -> Iterator[Commit]:
        """Every checkpoint, the newest first."""
        next = self.head
        while next is not None:
            commit = self.commit(next)
            yield commit
            next = commit.parents[0] if commit.parents else None


@contextmanager
def opened(folder: Path, *, writing: bool, wait: float) -> Iterator[ObjectStore]:
    """The store under its lock, made if it is missing; raises `TryAgainLater` after `wait` seconds without it."""
    _make(folder)
    lock = _locked(folder / "lock", fcntl.LOCK_EX if writing else fcntl.LOCK_SH, wait)
    with lock, closing(DiskObjectStore(folder / "objects")) as objects:
        yield ObjectStore(folder, objects)


def replace(path: Path, data: bytes) -> None:
    """Write a file of the store, on disk when it returns; the caller is its only writer."""
    draft = path.with_name(f"{path.name}.new")
    with open(draft, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names in it on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _make(folder: Path) -> None:
    """Idempotent, so that two who do it at once, or one that dies in it, leave a store."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    for part in ("objects/pack", "objects/info", "refs/heads"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    for name, text in _FILES.items():
        if not (folder / name).exists():
            replace(folder / name, text)
            sync_folder(folder / "objects")


@contextmanager
def _locked(path: Path, kind: int, wait: float) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = time.monotonic() + wait
        while not _taken(handle, kind):
            if time.monotonic() >= deadline:
                raise TryAgainLater("another program is at work on the checkpoints; try again in a minute")
            time.sleep(_LOOK_SECONDS)
        yield
    finally:
        os.close(handle)


def _taken(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

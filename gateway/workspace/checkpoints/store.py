"""The checkpoints' Git store, written by dulwich: opened by one process at a time, and crash-safe.

It is a bare repository that `git --git-dir` can read. Packs are on disk before the branch moves. A kill leaves at most
an unreferenced pack, or temporary and lock files that the next process to open the store removes.
"""

import fcntl
import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from dulwich.object_store import DiskObjectStore
from dulwich.objects import Commit, ObjectID, ShaFile
from dulwich.pack import Pack, full_unpacked_object
from dulwich.refs import HEADREF, DiskRefsContainer, Ref

from gateway.config.data.files import clear_way, open_regular
from gateway.domain.errors import OwnerMustAct
from gateway.workspace.files.access import open_folder

REPACK_COUNT = 100
REPACK_BYTES = 64 * 1024**2
"""The most bytes to repack at once, so that time and memory do not grow with the history."""

MAPPED_BYTES = 512 * 1024**2
"""The most bytes of packs mapped at a time."""

BATCH_BYTES = 16 * 1024**2
"""Bytes of content to buffer before writing a pack."""

_BRANCH = Ref(b"refs/heads/main")


@dataclass(frozen=True, slots=True)
class Store:
    """An open store; the process holds its lock."""

    folder: Path
    objects: DiskObjectStore
    refs: DiskRefsContainer

    @property
    def head(self) -> Commit | None:
        """The newest checkpoint."""
        return self.find(self.refs[_BRANCH].decode()) if _BRANCH in self.refs else None

    def move_head(self, commit: ObjectID) -> None:
        """Make `commit` the newest checkpoint; it and all its objects are already written."""
        self.sync()
        self.refs[_BRANCH] = commit

    def find(self, text: str) -> Commit:
        """The checkpoint whose id begins with `text`; raises `OwnerMustAct` unless there is exactly one."""
        if len(text) < 4 or not set(text) <= set("0123456789abcdef"):
            raise OwnerMustAct(
                f"{text} is not an id: give at least 4 characters of one from `supaclaw checkpoints list`"
            )
        found = [self.objects[id] for id in self.objects.iter_prefix(text.encode())]
        commits = [object for object in found if isinstance(object, Commit)]
        if len(commits) > 1:
            raise OwnerMustAct(f"{text} matches {len(commits)} checkpoints; give more letters of the id")
        if not commits:
            raise OwnerMustAct(f"there is no checkpoint {text}; `supaclaw checkpoints list` shows them")
        return commits[0]

    def sync(self) -> None:
        """Sync the folder of the packs; their contents are already synced."""
        with open_folder(self.folder, ("objects", "pack")) as packs:
            os.fsync(packs)

    def repack(self) -> None:
        """Merge the small packs if there are many."""
        packs = self._packs()
        by_size = sorted((path.stat().st_size, path) for path in packs)
        totals = accumulate(size for size, _ in by_size)
        small = [path for (_, path), total in zip(by_size, totals, strict=True) if total <= REPACK_BYTES]
        if len(small) >= REPACK_COUNT:
            self._replace(small, {id for path in small for id in packs[path]})

    def keep_only(self, ids: set[ObjectID]) -> None:
        """Remove all other objects; open the store again to continue reading."""
        mixed = {path: pack for path, pack in self._packs().items() if not ids.issuperset(pack)}
        self._replace([*mixed], {id for pack in mixed.values() for id in pack if id in ids})

    def _packs(self) -> dict[Path, Pack]:
        return {self.folder / "objects" / "pack" / f"pack-{p.name().decode()}.pack": p for p in self.objects.packs}

    def _replace(self, packs: Sequence[Path], ids: Collection[ObjectID]) -> None:
        """Put these objects into one pack, in place of those packs."""
        made = self.objects.add_pack_data(len(ids), (full_unpacked_object(self.objects[id]) for id in ids))
        self.sync()
        for path in packs:
            if made is None or path.stem != f"pack-{made.name().decode()}":
                path.with_suffix(".idx").unlink()
                path.unlink()


class Additions:
    """Objects to be written to a store."""

    def __init__(self, objects: DiskObjectStore) -> None:
        self._objects = objects
        self._waiting: dict[ObjectID, ShaFile] = {}
        self._size = 0

    def add(self, object: ShaFile) -> None:
        """Add an object, unless the store has it."""
        if object.id not in self._waiting and object.id not in self._objects:
            self._waiting[object.id] = object
            self._size += object.raw_length()
            if self._size >= BATCH_BYTES:
                self.write()

    def write(self) -> None:
        """Write all added objects as a pack."""
        self._objects.add_objects([(object, None) for object in self._waiting.values()])
        self._waiting, self._size = {}, 0


@contextmanager
def open_store(folder: Path) -> Iterator[Store]:
    """Open the store, creating it if needed; waits for its lock."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (folder / "lock", folder / "HEAD", folder / _BRANCH.decode()):
        clear_way(path)
    with open_regular(folder / "lock", os.O_WRONLY | os.O_CREAT) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for part in ("objects/pack", "refs/heads"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        for left in folder.rglob("*.lock"):
            left.unlink()
        objects = DiskObjectStore(folder / "objects", fsync_object_files=True, packed_git_limit=MAPPED_BYTES)
        with closing(objects):
            objects.prune(grace_period=0)
            refs = DiskRefsContainer(folder)
            refs.set_symbolic_ref(HEADREF, _BRANCH)
            yield Store(folder, objects, refs)

"""Checkpoints without what is erased, by that command alone: the whole history is written anew."""

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from dulwich.objects import Blob, Commit, ObjectID, ShaFile, Tree

from gateway.workspace.checkpoints.snapshot import save_known
from gateway.workspace.checkpoints.store import Additions, Store, open_store


@dataclass(slots=True)
class _Rewriting:
    """`clean` gives the content to keep of a file, None for no file; a name that is `left_out` takes its file along."""

    store: Store
    clean: Callable[[bytes], bytes | None]
    left_out: Callable[[str], bool]
    additions: Additions | None
    _new: dict[ObjectID, ObjectID | None] = field(default_factory=dict)

    def history(self) -> Iterator[Commit]:
        """The newest first."""
        commit = self.store.head
        while commit is not None:
            yield commit
            parent = self.store.objects[commit.parents[0]] if commit.parents else None
            commit = parent if isinstance(parent, Commit) else None

    def tree(self, id: ObjectID) -> ObjectID:
        """What stands for a folder, itself if nothing in it is to be cleaned."""
        if (known := self._new.get(id)) is not None:
            return known
        made, old = Tree(), self.store.objects[id]
        assert isinstance(old, Tree), "a checkpoint refers to it as a folder"
        for name, mode, child in old.items():
            kept = self.tree(child) if stat.S_ISDIR(mode) else self._blob(child)
            if kept is not None and not self.left_out(os.fsdecode(name)):
                made.add(name, mode, kept)
        self._new[id] = self._keep(made)
        return made.id

    def finish(self, moved: Callable[[], None]) -> None:
        """Make the new history the only one; each step can be done again."""
        last: ObjectID | None = None
        for old in reversed([*self.history()]):
            commit = old.copy()
            assert isinstance(commit, Commit), "a copy is of the same kind"
            commit.tree, commit.parents = self.tree(old.tree), [last] if last else []
            last = self._new[commit.id] = self._keep(commit)
        if self.additions and last:
            self.additions.write()
            self.store.move_head(last)
            moved()
            save_known(self.store.folder, last, {}, 0)
            self.store.keep_only({id for id in self._new.values() if id})

    def _blob(self, id: ObjectID) -> ObjectID | None:
        if id not in self._new:
            data = self.store.objects[id].as_raw_string()
            clean = self.clean(data)
            self._new[id] = id if clean == data else None if clean is None else self._keep(Blob.from_string(clean))
        return self._new[id]

    def _keep(self, made: ShaFile) -> ObjectID:
        if self.additions is not None:
            self.additions.add(made)
        return made.id


def rewrite(
    folder: Path,
    clean: Callable[[bytes], bytes | None],
    left_out: Callable[[str], bool],
    moved: Callable[[], None] | None = None,
) -> int:
    """Clean all checkpoints; returns how many had something to clean. Without `moved`, which is called when nobody sees
    the old ones any more, nothing is changed.
    """
    if not folder.is_dir():
        return 0
    with open_store(folder) as store:
        work = _Rewriting(store, clean, left_out, Additions(store.objects) if moved else None)
        changed = len([old for old in work.history() if work.tree(old.tree) != old.tree])
        if moved:
            work.finish(moved)
    return changed

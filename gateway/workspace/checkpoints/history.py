"""Making checkpoints, comparing them, and reading one."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from dulwich.diff_tree import tree_changes
from dulwich.index import commit_tree
from dulwich.object_store import MemoryObjectStore, OverlayObjectStore, iter_tree_contents
from dulwich.objects import Blob, Commit, ObjectID

from gateway.domain.errors import OwnerMustAct
from gateway.workspace.checkpoints.snapshot import Entry, Files, left_out, load_known, save_known, take
from gateway.workspace.checkpoints.store import Additions, Store

_AUTHOR = b"SupaClaw <gateway@supaclaw.local>"
_WORDS = {"add": "added", "modify": "changed", "delete": "removed"}


class Present(NamedTuple):
    """The workspace as it is now: its files, what was left out, and its folders as Git has them, in memory."""

    files: Files
    skipped: Counter[str]
    folders: MemoryObjectStore
    tree: ObjectID


class Made(NamedTuple):
    """What a commit did; `id` is None when nothing had changed."""

    id: ObjectID | None
    changes: str
    present: Present


def present(store: Store, workspace: Path, put: Callable[[Blob], None]) -> Present:
    """Read the workspace; each content that is not known goes to `put`."""
    head, folders = store.head, MemoryObjectStore()
    files, skipped = take(workspace, load_known(store.folder, head.id) if head else {}, put)
    tree = commit_tree(folders, ((os.fsencode(path), entry.id, entry.mode) for path, (entry, _) in files.items()))
    return Present(files, skipped, folders, tree)


def compare(store: Store, old: Commit | None, new: Commit | Present) -> Iterator[tuple[str, str]]:
    """What became of a path (`added`, `changed` or `removed`) from `old` to `new`, and the path."""
    objects = OverlayObjectStore([new.folders, store.objects] if isinstance(new, Present) else [store.objects])
    for change in tree_changes(objects, old.tree if old else None, new.tree, change_type_same=True):
        entry = change.new or change.old
        if entry is not None and entry.path is not None:
            yield _WORDS[change.type], os.fsdecode(entry.path)


def commit(store: Store, workspace: Path, reason: str, last_message: int | None) -> Made:
    """Keep the workspace as it is now."""
    began, head, additions = time.time_ns(), store.head, Additions(store.objects)
    now = present(store, workspace, additions.add)
    counts = Counter(what for what, _ in compare(store, head, now))
    changes = ", ".join(f"{counts[what]} {what}" for what in _WORDS.values() if counts[what])
    if changes:
        made = _commit(now.tree, head, f"{reason}: {changes}", last_message)
        for object in (*(now.folders[id] for id in now.folders), made):
            additions.add(object)
        additions.write()
        store.move_head(made.id)
        head = made
    if head is not None:
        save_known(store.folder, head.id, now.files, began)
    return Made(head.id if head and changes else None, changes, now)


def _commit(tree: ObjectID, parent: Commit | None, line: str, last_message: int | None) -> Commit:
    made = Commit()
    made.tree = tree
    made.parents = [parent.id] if parent else []
    made.author = made.committer = _AUTHOR
    made.author_time = made.commit_time = int(time.time())
    made.author_timezone = made.commit_timezone = 0
    trailer = "" if last_message is None else f"\nLast-Message: {last_message}\n"
    made.message = f"{line}\n{trailer}".encode()
    return made


def contents(store: Store, commit: Commit) -> dict[str, Entry]:
    """Every file and link of a checkpoint; raises `OwnerMustAct` for a path that none of ours has."""
    found: dict[str, Entry] = {}
    for item in iter_tree_contents(store.objects, commit.tree):
        path = os.fsdecode(item.path or b"")
        parts = tuple(path.split("/"))
        if left_out(parts) or not {"", ".", ".."}.isdisjoint(parts) or not item.mode or not item.sha:
            raise OwnerMustAct(f"{store.folder} holds a checkpoint that is not ours: it has {path!r} in it")
        found[path] = Entry(item.mode, item.sha)
    return found

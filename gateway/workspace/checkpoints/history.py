"""Creates, compares and reads checkpoints, and restores files from one.

Restoring only overwrites or removes content that a checkpoint holds.
"""

import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from dulwich.diff_tree import tree_changes
from dulwich.index import commit_tree
from dulwich.object_store import MemoryObjectStore, OverlayObjectStore, iter_tree_contents
from dulwich.objects import Blob, Commit, ObjectID

from gateway.domain.errors import OwnerMustAct
from gateway.workspace.checkpoints.snapshot import (
    CheckpointEntry,
    Files,
    excluded,
    load_known,
    save_known,
    take_snapshot,
)
from gateway.workspace.checkpoints.store import Additions, Store
from gateway.workspace.files.access import new_file, open_folder, replacing
from gateway.workspace.files.disk import FileState

_AUTHOR = b"SupaClaw <gateway@supaclaw.local>"
_WORDS = {"add": "added", "modify": "changed", "delete": "removed"}


class WorkspaceState(NamedTuple):
    """The current workspace: its files, the counts of skipped ones, and its folders as Git trees, in memory."""

    files: Files
    skipped: Counter[str]
    folders: MemoryObjectStore
    tree: ObjectID


class CommitResult(NamedTuple):
    """The result of a commit; `id` is None if nothing had changed."""

    id: ObjectID | None
    changes: str
    state: WorkspaceState


def read_workspace(store: Store, workspace: Path, put: Callable[[Blob], None]) -> WorkspaceState:
    """Read the workspace; passes new content to `put`."""
    head, folders = store.head, MemoryObjectStore()
    known = load_known(store.folder, head.id) if head else {}
    if head and not known:
        known = {path: (entry, FileState.NEVER) for path, entry in contents(store, head).items()}
    files, skipped = take_snapshot(workspace, known, put)
    tree = commit_tree(folders, ((os.fsencode(path), entry.id, entry.mode) for path, (entry, _) in files.items()))
    return WorkspaceState(files, skipped, folders, tree)


def compare(store: Store, old: Commit | None, new: Commit | WorkspaceState) -> Iterator[tuple[str, str]]:
    """Yield the change of each path (`added`, `changed` or `removed`) from `old` to `new`, and the path."""
    objects = OverlayObjectStore([new.folders, store.objects] if isinstance(new, WorkspaceState) else [store.objects])
    for change in tree_changes(objects, old.tree if old else None, new.tree, change_type_same=True):
        entry = change.new or change.old
        if entry is not None and entry.path is not None:
            yield _WORDS[change.type], os.fsdecode(entry.path)


def commit(store: Store, workspace: Path, reason: str, last_message: int | None) -> CommitResult:
    """Save the current workspace as a checkpoint."""
    began, head, additions = time.time_ns(), store.head, Additions(store.objects)
    now = read_workspace(store, workspace, additions.add)
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
    return CommitResult(head.id if head and changes else None, changes, now)


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


def contents(store: Store, commit: Commit) -> dict[str, CheckpointEntry]:
    """Every file and link of a checkpoint; raises `OwnerMustAct` for a path that we would never have stored."""
    found: dict[str, CheckpointEntry] = {}
    for item in iter_tree_contents(store.objects, commit.tree):
        path = os.fsdecode(item.path or b"")
        parts = tuple(path.split("/"))
        if excluded(parts) or not {"", ".", ".."}.isdisjoint(parts) or not item.mode or not item.sha:
            raise OwnerMustAct(f"{store.folder} holds a checkpoint that is not ours: it has {path!r} in it")
        found[path] = CheckpointEntry(item.mode, item.sha)
    return found


@dataclass(slots=True)
class Restored:
    """The number of files written and removed, and the paths that were left unchanged."""

    written: int = 0
    removed: int = 0
    left: list[str] = field(default_factory=list)


def make_equal(
    root: Path, now: Files, target: Mapping[str, CheckpointEntry], content: Callable[[ObjectID], bytes]
) -> Restored:
    """Turn `now`, a fresh snapshot of `root`, into `target`.

    Leaves files that changed after the snapshot, and those that no snapshot can hold.
    """
    done = Restored()
    gone = sorted(now.keys() - target.keys(), reverse=True)
    changed = sorted(path for path, entry in target.items() if path not in now or now[path][0] != entry)
    for path in (*gone, *changed):
        seen = now[path][1] if path in now else None
        try:
            if path in target:
                _write(root, path, seen, target[path].mode, content(target[path].id))
                done.written += 1
            else:
                _remove(root, path, seen)
                done.removed += 1
        except OSError:
            done.left.append(path)
    return done


def _remove(root: Path, path: str, seen: FileState | None) -> None:
    *parents, name = path.split("/")
    with open_folder(root, tuple(parents)) as folder:
        _require_unchanged(folder, name, seen)
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)
    # Checkpoints hold files only: remove folders that became empty.
    with suppress(OSError):
        while parts := tuple(parents):
            with open_folder(root, parts[:-1]) as folder:
                os.rmdir(parents.pop(), dir_fd=folder)


def _write(root: Path, path: str, seen: FileState | None, mode: int, data: bytes) -> None:
    *parents, name = path.split("/")
    with open_folder(root, tuple(parents), create=0o777) as folder:
        shared = _require_unchanged(folder, name, seen)
        with replacing(folder, name) as draft:
            if stat.S_ISLNK(mode):
                os.symlink(data, os.fsencode(draft), dir_fd=folder)
            else:
                with new_file(folder, draft, mode & 0o777) as file:
                    os.fchmod(file.fileno(), os.fstat(file.fileno()).st_mode & 0o777 | shared)
                    file.write(data)


def _require_unchanged(folder: int, name: str, seen: FileState | None) -> int:
    """Check that the file did not change after the snapshot; raises `FileExistsError` if it did.

    Returns the bits by which its group and others may read and write it, 0 if it is not a regular file or is gone.
    """
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if FileState.of(status) != seen:  # its content is in no checkpoint
            raise FileExistsError(name)
        return status.st_mode & 0o066 if stat.S_ISREG(status.st_mode) else 0
    return 0

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
from struct import Struct
from typing import NamedTuple, TypeAlias

from dulwich.diff_tree import tree_changes
from dulwich.index import commit_tree
from dulwich.object_store import MemoryObjectStore, OverlayObjectStore, iter_tree_contents
from dulwich.objects import Blob, Commit, ObjectID

from gateway.domain.errors import OwnerMustAct
from gateway.workspace.checkpoints.store import Additions, Store
from gateway.workspace.files.access import READ_FLAGS, TEMPORARY_PREFIX, new_file, open_folder, replacing
from gateway.workspace.files.disk import UNREADABLE, FileState, FoundFile, mostly_holes, walk
from gateway.workspace.files.index import load_records, save_records
from gateway.workspace.files.paths import READ_ONLY

MAX_FILE_BYTES = 100 * 1024**2
MAX_NEW_BYTES = 1024**3
MAX_SECONDS = 30.0
"""Of reading for one checkpoint; the next one goes on from there."""
MAX_DEPTH = 200
"""Levels of folders; each needs an open descriptor."""

_KNOWN = "known-files"
_RECORD = Struct(f"<{len(FileState.NEVER)}sI40s")
"""The state of a file, its Git mode and the id of its content."""


class CheckpointEntry(NamedTuple):
    """A file or link of a checkpoint: its Git mode, and the id of its content."""

    mode: int
    id: ObjectID


Files: TypeAlias = dict[str, tuple[CheckpointEntry, FileState]]


class _Skipped(Exception):
    """A file cannot be stored in a checkpoint; the text is the reason."""


class _Later(Exception):
    """A file is left to the next checkpoint."""


def take_snapshot(root: Path, known: Files, put: Callable[[Blob], None]) -> tuple[Files, Counter[str]]:
    """Every file and link by path, and the count of skipped ones by reason; passes content not `known` to `put`.

    What could be read before and cannot be now stays as it is known.
    """
    reader, skipped, files = _Reader(known, put), Counter[str](), Files()

    def failed(path: str, why: str) -> None:
        skipped[why] += 1
        if path in known:
            files[path] = known[path][0], FileState.NEVER

    for found in walk(root.resolve(strict=True), excluded, failed, MAX_DEPTH):
        try:
            files[found.path] = reader.seen(found)
        except _Skipped as reason:
            skipped[str(reason)] += 1
        except FileNotFoundError:
            continue
        except _Later as reason:
            failed(found.path, str(reason))
        except OSError:
            failed(found.path, UNREADABLE)
    return files, skipped


def excluded(parts: tuple[str, ...]) -> bool:
    """Whether checkpoints exclude this path: the gateway's own folders, and half-written files."""
    return parts[0].casefold() in READ_ONLY or parts[-1].startswith(TEMPORARY_PREFIX)


def load_known(folder: Path, head: ObjectID) -> Files:
    """The files as read for `head`; empty if that isn't recorded, for it is only a cache."""
    files = Files()
    for path, record in load_records(folder / _KNOWN, head.decode()).items():
        state, mode, id = _RECORD.unpack(record)
        files[path] = CheckpointEntry(mode, ObjectID(id)), FileState(state)
    return files


def save_known(folder: Path, head: ObjectID, files: Files, began_ns: int) -> None:
    """Record the files of `head`, from a snapshot begun at `began_ns`."""
    records = {
        path: _RECORD.pack(state if state.settled(began_ns) else FileState.NEVER, *entry)
        for path, (entry, state) in files.items()
    }
    save_records(folder / _KNOWN, head.decode(), records)
    (folder / "known-files.json").unlink(missing_ok=True)  # of older versions; it has names of files, too


class _Reader:
    """Reads what is not known, as much as one checkpoint may."""

    def __init__(self, known: Files, put: Callable[[Blob], None]) -> None:
        self._known = known
        self._put = put
        self._linked: dict[FileState, CheckpointEntry] = {}
        self._left, self._until = MAX_NEW_BYTES, time.monotonic() + MAX_SECONDS

    def seen(self, found: FoundFile) -> tuple[CheckpointEntry, FileState]:
        """The file's entry; raises `_Skipped`, `_Later` and `OSError`."""
        # The state is older than the content: a change while reading is noticed next time.
        state = FileState.of(found.status)
        if found.path in self._known and self._known[found.path][1] == state:
            return self._known[found.path]
        if state not in self._linked:
            entry = self._read(found.folder, found.name, found.status)
            if found.status.st_nlink == 1:
                return entry, state
            self._linked[state] = entry
        return self._linked[state], state

    def _read(self, folder: int, name: str, status: os.stat_result) -> CheckpointEntry:
        if stat.S_ISLNK(status.st_mode):
            mode, data = stat.S_IFLNK, os.fsencode(os.readlink(name, dir_fd=folder))
        elif stat.S_ISREG(status.st_mode):
            if self._left < min(status.st_size, MAX_FILE_BYTES) or time.monotonic() > self._until:
                raise _Later("left for the next checkpoint")
            mode, data = stat.S_IFREG | (0o755 if status.st_mode & stat.S_IXUSR else 0o644), _content(folder, name)
            self._left -= len(data)
        else:
            raise _Skipped("not a file")
        blob = Blob.from_string(data)
        self._put(blob)
        return CheckpointEntry(mode, blob.id)


def _content(folder: int, name: str) -> bytes:
    with open(os.open(name, READ_FLAGS, dir_fd=folder), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _Skipped("not a file")
        if status.st_size > MAX_FILE_BYTES:
            raise _Skipped("too large")
        if mostly_holes(file.fileno(), status):
            raise _Skipped("mostly holes")
        return file.read(status.st_size)


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

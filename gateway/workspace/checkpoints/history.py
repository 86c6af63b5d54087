"""Making checkpoints, and finding one's way among them."""

import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dulwich.objects import Commit, ObjectID, ShaFile, Tree

from gateway.domain.errors import OwnerMustAct
from gateway.workspace import known_files
from gateway.workspace.checkpoints.object_store import ObjectStore
from gateway.workspace.checkpoints.packs import PackWriter, new_pack
from gateway.workspace.checkpoints.snapshot import Entry, Known, Snapshot, left_out, take

_AUTHOR = b"SupaClaw <gateway@supaclaw.local>"
_ID = re.compile("[0-9a-f]{4,40}")
_TRAILER = re.compile(r"^(Reason|Last-Message): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one path: `added`, `changed` or `removed`."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class Made:
    """What a commit did; `id` is None when nothing had changed."""

    id: ObjectID | None
    changes: tuple[Change, ...]
    snapshot: Snapshot


class _Missing(Exception):
    """A file thought to be known is not in the store."""


def commit(objects: ObjectStore, workspace: Path, reason: str, last_message: int | None) -> Made:
    """Keep the workspace as it is now."""
    try:
        return _commit(objects, workspace, reason, last_message, known_files.load(objects.folder))
    except _Missing:
        return _commit(objects, workspace, reason, last_message, {})


def _commit(objects: ObjectStore, workspace: Path, reason: str, last_message: int | None, known: Known) -> Made:
    head = objects.head
    before = objects.commit(head).tree if head else Tree().id
    with new_pack(objects.packs) as pack:
        snapshot = take(workspace, known, lambda object: _keep(objects, pack, object))
        if snapshot.tree == before:
            _remember(objects, known, snapshot)
            return Made(None, (), snapshot)
        changes = tuple(compare(entries(objects, before), snapshot.entries))
        made = _described(snapshot.tree, head, reason, last_message, changes)
        pack.add(made)
        pack.finish()
    objects.move_head(made.id)
    _remember(objects, known, snapshot)
    return Made(made.id, changes, snapshot)


def _keep(objects: ObjectStore, pack: PackWriter, object: ShaFile) -> None:
    """Into the pack, unless it is there. A new folder may hold only what is there: a tree is never half."""
    if object.id in pack or object.id in objects.objects:
        return
    if isinstance(object, Tree) and not all(e.sha in pack or e.sha in objects.objects for e in object.items()):
        raise _Missing
    pack.add(object)


def _remember(objects: ObjectStore, known: Known, snapshot: Snapshot) -> None:
    if known != {path: seen for path, seen in snapshot.seen.items() if seen.settled}:
        known_files.save(objects.folder, snapshot.seen)


def _described(
    tree: ObjectID, parent: ObjectID | None, reason: str, last_message: int | None, changes: tuple[Change, ...]
) -> Commit:
    made = Commit()
    made.tree = tree
    made.parents = [parent] if parent else []
    made.author = made.committer = _AUTHOR
    made.author_time = made.commit_time = int(time.time())
    made.author_timezone = made.commit_timezone = 0
    made.encoding = b"UTF-8"
    trailers = [f"Reason: {reason}"] + ([f"Last-Message: {last_message}"] if last_message is not None else [])
    made.message = "\n".join([f"{reason}: {_summary(changes)}", "", *trailers, ""]).encode()
    return made


def _summary(changes: tuple[Change, ...]) -> str:
    counts = {what: sum(change.what == what for change in changes) for what in ("added", "changed", "removed")}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def compare(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Iterator[Change]:
    """What it takes to make `new` out of `old`, in the order of the paths."""
    for path in sorted(old.keys() | new.keys()):
        if path not in old:
            yield Change(path, "added")
        elif path not in new:
            yield Change(path, "removed")
        elif old[path] != new[path]:
            yield Change(path, "changed")


def entries(objects: ObjectStore, tree: ObjectID, prefix: str = "") -> dict[str, Entry]:
    """Every file and link of a checkpoint; raises `OwnerMustAct` for a name that no checkpoint of ours holds."""
    found: dict[str, Entry] = {}
    for name, mode, id in _items(objects, tree):
        text = os.fsdecode(name)
        if b"/" in name or name in {b"", b".", b".."} or left_out(text, top=not prefix):
            raise OwnerMustAct(f"{objects.folder} holds a checkpoint that is not ours: it has {text!r} in it")
        if stat.S_ISDIR(mode):
            found |= entries(objects, id, f"{prefix}{text}/")
        elif stat.S_ISREG(mode) or stat.S_ISLNK(mode):
            found[f"{prefix}{text}"] = Entry(mode, id)
    return found


def _items(objects: ObjectStore, tree: ObjectID) -> Iterator[tuple[bytes, int, ObjectID]]:
    if tree != Tree().id:
        yield from ((item.path, item.mode, item.sha) for item in objects.tree(tree).items())


def find(objects: ObjectStore, text: str) -> Commit:
    """The checkpoint whose id begins with `text`; raises `OwnerMustAct` unless there is exactly one."""
    if not _ID.fullmatch(text):
        raise OwnerMustAct(f"{text} is no id: take at least 4 letters of one from `supaclaw checkpoints list`")
    found = [objects.objects[id] for id in objects.objects.iter_prefix(text.encode())]
    commits = [commit for commit in found if isinstance(commit, Commit)]
    if len(commits) > 1:
        raise OwnerMustAct(f"{text} begins the ids of {len(commits)} checkpoints; give more letters of it")
    if not commits:
        raise OwnerMustAct(f"there is no checkpoint {text}; `supaclaw checkpoints list` shows them")
    return commits[0]


def described(commit: Commit) -> Mapping[str, str]:
    """The trailers of its message, and its first line, by name."""
    text = commit.message.decode(errors="replace")
    return {**dict(_TRAILER.findall(text)), "Line": text.partition("\n")[0]}

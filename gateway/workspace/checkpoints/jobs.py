"""Checkpoints of the workspace, as jobs for the CPU process: JSON in, JSON out.

What they need is imported when they run, so that whoever only names a job does not load Git.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from unicodedata import normalize

from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import JsonObject
from gateway.workspace.paths import WorkspaceError, WorkspacePath

if TYPE_CHECKING:
    from dulwich.objects import Commit

    from gateway.workspace.checkpoints.history import Made
    from gateway.workspace.checkpoints.object_store import ObjectStore
    from gateway.workspace.checkpoints.snapshot import Entry

BEFORE_RESTORE = "before restore"
WAIT_SECONDS = 30.0
"""How long a job waits for one of another program."""

_Kept = TypeVar("_Kept")


def commit(workspace: str, store: str, last_message: int | None, reason: str, wait: float = WAIT_SECONDS) -> JsonObject:
    """Make a checkpoint; `id` is null when nothing has changed since the last one."""
    from gateway.workspace import history

    with _opened(workspace, store, writing=True, wait=wait) as objects:
        return _told(history.commit(objects, Path(workspace), reason, last_message))


def repack(store: str, wait: float = WAIT_SECONDS) -> int:
    """Put small packs together when there are many; how many there are then."""
    from gateway.workspace import repacking

    with _opened(None, store, writing=True, wait=wait) as objects:
        return repacking.repack(objects)


def listing(store: str, limit: int, wait: float = WAIT_SECONDS) -> list[JsonObject]:
    """The last checkpoints, the newest first."""
    from itertools import islice

    with _opened(None, store, writing=False, wait=wait) as objects:
        return [_row(commit) for commit in islice(objects.history(), limit)]


def diff(workspace: str, store: str, old: str, new: str | None, wait: float = WAIT_SECONDS) -> list[JsonObject]:
    """What changed from one checkpoint to another, or to the workspace as it is now."""
    from gateway.workspace import history

    with _opened(workspace, store, writing=False, wait=wait) as objects:
        before = history.entries(objects, history.find(objects, old).tree)
        if new is None:
            after = _present(objects, Path(workspace))
        else:
            after = history.entries(objects, history.find(objects, new).tree)
        return [{"change": change.what, "path": shown(change.path)} for change in history.compare(before, after)]


def restore(
    workspace: str, store: str, id: str, path: str | None, last_message: int | None, wait: float = WAIT_SECONDS
) -> JsonObject:
    """Make the workspace, or only `path`, what it was in a checkpoint; what it is now becomes a checkpoint first."""
    from gateway.workspace import history
    from gateway.workspace.checkpoints.restoring import make_equal

    wanted = _wanted(path)
    with _opened(workspace, store, writing=True, wait=wait) as objects:
        found = history.find(objects, id)
        target = _below(wanted, history.entries(objects, found.tree))
        made = history.commit(objects, Path(workspace), BEFORE_RESTORE, last_message)
        now = _below(wanted, made.snapshot.seen)
        if wanted is not None and not target and not now:
            raise OwnerMustAct(f"neither the checkpoint nor the workspace has {wanted}; `diff {id}` lists what differs")
        done = make_equal(Path(workspace), now, target, objects.content)
    return {
        "restored": found.id.decode(),
        "before": _told(made),
        "written": done.written,
        "removed": done.removed,
        "left": [{"path": shown(path), "reason": reason} for path, reason in done.left.items()],
    }


def shown(path: str) -> str:
    """A path for people: whatever could disturb a terminal or is no text is escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


@contextmanager
def _opened(workspace: str | None, store: str, *, writing: bool, wait: float) -> Iterator["ObjectStore"]:
    """The store; the system's errors become ours."""
    from gateway.workspace import object_store

    if workspace is not None and Path(store).resolve().is_relative_to(Path(workspace).resolve()):
        raise OwnerMustAct(f"the checkpoints in {store} are inside the workspace; set SUPACLAW_WORKSPACE elsewhere")
    try:
        with object_store.opened(Path(store), writing=writing, wait=wait) as objects:
            yield objects
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else store
        raise OwnerMustAct(f"checkpoints: {where}: {error.strerror}; free space or correct its mode") from error


def _present(objects: "ObjectStore", workspace: Path) -> Mapping[str, "Entry"]:
    from gateway.workspace import known_files
    from gateway.workspace.checkpoints.snapshot import take

    return take(workspace, known_files.load(objects.folder), lambda _: None).entries


def _wanted(path: str | None) -> WorkspacePath | None:
    if path is None:
        return None
    try:
        wanted = WorkspacePath.parse(path)
    except WorkspaceError as error:
        raise OwnerMustAct(str(error)) from error
    if wanted.read_only:
        raise OwnerMustAct(f"{wanted} is in no checkpoint: the gateway writes it and can make it again")
    return wanted if wanted.parts else None


def _below(wanted: WorkspacePath | None, files: Mapping[str, _Kept]) -> dict[str, _Kept]:
    """The wanted part; names may be composed differently on disk."""
    if wanted is None:
        return dict(files)
    prefix = f"{wanted}/"
    return {path: kept for path, kept in files.items() if f"{normalize('NFC', path)}/".startswith(prefix)}


def _told(made: "Made") -> JsonObject:
    counts = {what: sum(change.what == what for change in made.changes) for what in ("added", "changed", "removed")}
    id = made.id.decode() if made.id else None
    return {"id": id, **counts, "files": len(made.snapshot.seen), "skipped": dict(made.snapshot.skipped)}


def _row(commit: "Commit") -> JsonObject:
    from gateway.workspace.checkpoints.history import described

    told = described(commit)
    return {
        "id": commit.id.decode(),
        "made_at": datetime.fromtimestamp(commit.commit_time, UTC).isoformat(),
        "reason": told.get("Reason", ""),
        "changes": told["Line"].partition(": ")[2],
        "last_message": int(told["Last-Message"]) if "Last-Message" in told else None,
    }

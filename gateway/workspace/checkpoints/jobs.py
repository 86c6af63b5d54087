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
from gateway.workspace.paths import WorkspacePath

if TYPE_CHECKING:
    from dulwich.objects import Commit, ObjectID

    from gateway.workspace.checkpoints.history import Made
    from gateway.workspace.checkpoints.store import Store

SHORT = 10
"""Letters of an id that are told: enough for as many checkpoints as there may be."""

_File = TypeVar("_File")


def commit(workspace: str, store: str, last_message: int | None, reason: str) -> JsonObject:
    """Make a checkpoint; `id` is null when nothing has changed since the last one."""
    from gateway.workspace.checkpoints import history

    with _opened(workspace, store) as opened:
        made = history.commit(opened, Path(workspace), reason, last_message)
        opened.repack()
        return _told(made)


def listing(store: str, limit: int) -> list[JsonObject]:
    """The last checkpoints, the newest first."""
    from dulwich.walk import Walker

    with _opened(None, store) as opened:
        head = opened.head
        found = list(Walker(opened.objects, [head.id], max_entries=limit)) if head else []
        return [_row(entry.commit) for entry in found]


def diff(workspace: str, store: str, old: str, new: str | None) -> list[JsonObject]:
    """What changed from one checkpoint to another, or to the workspace as it is now."""
    from gateway.workspace.checkpoints import history

    with _opened(workspace, store) as opened:
        before = opened.find(old)
        after = opened.find(new) if new else history.present(opened, Path(workspace), lambda _: None)
        return [{"change": what, "path": _shown(path)} for what, path in history.compare(opened, before, after)]


def restore(workspace: str, store: str, id: str, path: str | None, last_message: int | None) -> JsonObject:
    """Make the workspace, or only `path`, what it was in a checkpoint; what it is now becomes a checkpoint first."""
    from gateway.workspace.checkpoints import history
    from gateway.workspace.checkpoints.restoring import make_equal

    wanted = WorkspacePath.parse(path or ".")
    with _opened(workspace, store) as opened:
        found = opened.find(id)
        target = _below(wanted, history.contents(opened, found))
        made = history.commit(opened, Path(workspace), "before restore", last_message)
        now = _below(wanted, made.present.files)
        if wanted.parts and not target and not now:
            raise OwnerMustAct(f"neither the checkpoint nor the workspace has {wanted}; `diff {id}` lists what differs")
        done = make_equal(Path(workspace), now, target, lambda id: opened.objects[id].as_raw_string())
    left = [_shown(path) for path in done.left]
    return {"before": _short(made.id), "written": done.written, "removed": done.removed, "left": left}


@contextmanager
def _opened(workspace: str | None, store: str) -> Iterator["Store"]:
    """The store; what is wrong with it or the workspace becomes an error of ours."""
    from gateway.workspace.checkpoints.store import opened

    if workspace is not None and Path(store).resolve().is_relative_to(Path(workspace).resolve()):
        raise OwnerMustAct(f"the checkpoints in {store} are inside the workspace; set SUPACLAW_WORKSPACE elsewhere")
    try:
        with opened(Path(store)) as found:
            yield found
    except KeyError as error:
        raise OwnerMustAct(f"{store} is damaged at {error}: restore it from a backup, or move it away") from error
    except OSError as error:
        where = error.filename or store
        raise OwnerMustAct(f"checkpoints: {where}: {error.strerror}; free space or correct its mode") from error


def _below(wanted: WorkspacePath, files: Mapping[str, _File]) -> dict[str, _File]:
    """The wanted part; names may be composed differently on disk."""
    prefix = f"{wanted}/" if wanted.parts else ""
    return {path: file for path, file in files.items() if f"{normalize('NFC', path)}/".startswith(prefix)}


def _told(made: "Made") -> JsonObject:
    skipped = ", ".join(f"{count} {reason}" for reason, count in made.present.skipped.items())
    return {"id": _short(made.id), "changes": made.changes, "left_out": skipped}


def _short(id: "ObjectID | None") -> str | None:
    return id[:SHORT].decode() if id else None


def _row(commit: "Commit") -> JsonObject:
    line, _, trailer = commit.message.decode().strip().partition("\n\nLast-Message: ")
    reason, _, changes = line.partition(": ")
    return {
        "id": _short(commit.id),
        "made_at": datetime.fromtimestamp(commit.commit_time, UTC).isoformat(),
        "reason": reason,
        "changes": changes,
        "last_message": int(trailer) if trailer else None,
    }


def _shown(path: str) -> str:
    """A path for people: whatever could disturb a terminal or is no text is escaped."""
    text = os.fsencode(path).decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)

"""Checkpoints of the workspace, as jobs for the CPU process: JSON in, JSON out.

Their imports are deferred, so that referring to a job does not load Git.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from unicodedata import normalize

from gateway.domain.conversation.diff import LONGEST, difference
from gateway.domain.conversation.tools import ToolFailed
from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import JsonObject
from gateway.domain.text.texts import printable
from gateway.workspace.files.access import open_file
from gateway.workspace.files.pages import read_bytes
from gateway.workspace.files.paths import WorkspacePath

if TYPE_CHECKING:
    from dulwich.objects import Commit, ObjectID

    from gateway.workspace.checkpoints.store import Store

SHORT_ID = 10
"""Letters of an id to show: enough to be unique."""

_File = TypeVar("_File")


def commit(workspace: str, store: str, last_message: int | None, reason: str) -> JsonObject:
    """Create a checkpoint; `id` is null if nothing has changed since the last one."""
    from gateway.workspace.checkpoints import history

    with _open(workspace, store) as opened:
        result = history.commit(opened, Path(workspace), reason, last_message)
        opened.repack()
    skipped = ", ".join(f"{count} {reason}" for reason, count in result.state.skipped.items())
    return {"id": _short(result.id), "changes": result.changes, "left_out": skipped}


def listing(store: str, limit: int) -> list[JsonObject]:
    """The last checkpoints, newest first."""
    from dulwich.walk import Walker

    with _open(None, store) as opened:
        head = opened.head
        found = list(Walker(opened.objects, [head.id], max_entries=limit)) if head else []
        return [_row(entry.commit) for entry in found]


def diff(workspace: str, store: str, old: str, new: str | None) -> list[JsonObject]:
    """The changes from one checkpoint to another, or to the current workspace."""
    from gateway.workspace.checkpoints import history

    with _open(workspace, store) as opened:
        before = opened.find(old)
        after = opened.find(new) if new else history.read_workspace(opened, Path(workspace), lambda _: None)
        return [{"change": what, "path": _printable(path)} for what, path in history.compare(opened, before, after)]


def lines(workspace: str, store: str, id: str, path: str) -> str:
    """The lines of a file that changed from a checkpoint to now, or why they aren't shown."""
    from gateway.workspace.checkpoints import history

    where = WorkspacePath.parse(path)
    with _open(workspace, store) as opened:
        entry = _below(where, history.contents(opened, opened.find(id))).get(str(where))
        before = opened.objects[entry.id].as_raw_string() if entry else b""
    after = b""
    with suppress(OSError), open_file(Path(workspace), where) as file:
        after = read_bytes(file, LONGEST + 1)
    with suppress(UnicodeDecodeError, ToolFailed):
        return difference(str(where), before.decode(), after.decode())
    return "The file is too long to compare, or not a text."


def restore(workspace: str, store: str, id: str, path: str | None, last_message: int | None) -> JsonObject:
    """Restore the workspace, or only `path`, from a checkpoint; first saves the current state as a checkpoint."""
    from gateway.workspace.checkpoints import history
    from gateway.workspace.checkpoints.history import make_equal

    wanted = WorkspacePath.parse(path or ".")
    with _open(workspace, store) as opened:
        target = _below(wanted, history.contents(opened, opened.find(id)))
        result = history.commit(opened, Path(workspace), "before restore", last_message)
        now = _below(wanted, result.state.files)
        if wanted.parts and not target and not now:
            raise OwnerMustAct(f"neither the checkpoint nor the workspace has {wanted}; `diff {id}` lists what differs")
        done = make_equal(Path(workspace), now, target, lambda id: opened.objects[id].as_raw_string())
    left = [_printable(path) for path in done.left]
    return {"before": _short(result.id), "written": done.written, "removed": done.removed, "left": left}


@contextmanager
def _open(workspace: str | None, store: str) -> Iterator["Store"]:
    from gateway.workspace.checkpoints.store import open_store

    if workspace is not None and Path(store).resolve().is_relative_to(Path(workspace).resolve()):
        raise OwnerMustAct(f"the checkpoints in {store} are inside the workspace; set SUPACLAW_WORKSPACE elsewhere")
    try:
        with open_store(Path(store)) as found:
            yield found
    except KeyError as error:
        raise OwnerMustAct(f"{store} is damaged at {error}: restore it from a backup, or move it away") from error
    except OSError as error:
        where = error.filename or store
        raise OwnerMustAct(f"checkpoints: {where}: {error.strerror}; free space or correct its mode") from error


def _below(wanted: WorkspacePath, files: Mapping[str, _File]) -> dict[str, _File]:
    """The files below `wanted`; names on disk may use another Unicode normalisation."""
    prefix = f"{wanted}/" if wanted.parts else ""
    return {path: file for path, file in files.items() if f"{normalize('NFC', path)}/".startswith(prefix)}


def _short(id: "ObjectID | None") -> str | None:
    return id[:SHORT_ID].decode() if id else None


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


def _printable(path: str) -> str:
    """A path for display, with control characters and invalid text escaped."""
    return printable(os.fsencode(path).decode("utf-8", "backslashreplace"), keep="")

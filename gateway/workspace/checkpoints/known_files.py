"""What the last snapshot saw of each file, kept beside the objects: only a saving of time, never needed."""

import json
from contextlib import suppress
from pathlib import Path

from dulwich.objects import ObjectID

from gateway.workspace.checkpoints.object_store import replace
from gateway.workspace.checkpoints.snapshot import Entry, Known, Seen

_NAME = "known-files.json"
_VERSION = 1


def load(folder: Path) -> Known:
    """By path; nothing if there is no such file or it cannot be understood."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        kept = json.loads((folder / _NAME).read_bytes())
        if kept["version"] == _VERSION:
            return {path: _seen(*fields) for path, fields in kept["files"].items()}
    return {}


def save(folder: Path, known: Known) -> None:
    """Take the place of what was kept before."""
    settled = {path: seen for path, seen in known.items() if seen.settled}
    files = {path: [*seen.stamp, seen.entry.mode, seen.entry.id.decode()] for path, seen in settled.items()}
    replace(folder / _NAME, json.dumps({"version": _VERSION, "files": files}, separators=(",", ":")).encode())


def _seen(modified: int, changed: int, size: int, inode: int, mode: int, kept_mode: int, id: str) -> Seen:
    return Seen((modified, changed, size, inode, mode), Entry(kept_mode, ObjectID(id.encode())), settled=True)

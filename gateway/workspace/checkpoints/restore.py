"""Restores the workspace or a part of it; only overwrites or removes content that a checkpoint holds."""

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from dulwich.objects import ObjectID

from gateway.workspace.atomic import new_file, replacing
from gateway.workspace.checkpoints.snapshot import Entry, Files, Stamp, stamp_of
from gateway.workspace.descent import open_folder


@dataclass(slots=True)
class Restored:
    """The number of files written and removed, and the paths that were left unchanged."""

    written: int = 0
    removed: int = 0
    left: list[str] = field(default_factory=list)


def make_equal(root: Path, now: Files, target: Mapping[str, Entry], content: Callable[[ObjectID], bytes]) -> Restored:
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


def _remove(root: Path, path: str, seen: Stamp | None) -> None:
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


def _write(root: Path, path: str, seen: Stamp | None, mode: int, data: bytes) -> None:
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


def _require_unchanged(folder: int, name: str, seen: Stamp | None) -> int:
    """Who else may read and write the file, 0 without one; raises `OSError` if it changed after the snapshot."""
    with suppress(FileNotFoundError):
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stamp_of(status) != seen:  # its content is in no checkpoint
            raise FileExistsError(name)
        return status.st_mode & 0o066 if stat.S_ISREG(status.st_mode) else 0
    return 0

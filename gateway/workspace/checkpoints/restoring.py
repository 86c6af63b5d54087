"""Making the workspace, or a path of it, what it was; only what a checkpoint holds is ever overwritten or removed."""

import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from dulwich.objects import ObjectID

from gateway.workspace.atomic import TEMPORARY
from gateway.workspace.checkpoints.snapshot import Entry, Known, stamp_of
from gateway.workspace.descent import open_folder

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Restored:
    """What was done; what was `left` as it is, with the reason by path."""

    written: int = 0
    removed: int = 0
    left: dict[str, str] = field(default_factory=dict)


class _Changed(Exception):
    """The file is not what the snapshot saw: its content is in no checkpoint."""


def make_equal(root: Path, now: Known, target: Mapping[str, Entry], content: Callable[[ObjectID], bytes]) -> Restored:
    """Turn `now`, which a snapshot has just seen below `root`, into `target`.

    What has changed since the snapshot, and what no snapshot can hold, is left as it is and reported.
    """
    done = Restored()
    for path in sorted(now.keys() - target.keys(), reverse=True):
        with _reported(done, path):
            _remove(root, path, now)
            done.removed += 1
    for path, entry in sorted(target.items()):
        if path not in now or now[path].entry != entry:
            with _reported(done, path):
                _write(root, path, entry, now, content(entry.id))
                done.written += 1
    return done


@contextmanager
def _reported(done: Restored, path: str) -> Iterator[None]:
    try:
        yield
    except _Changed:
        done.left[path] = "what is there now is in no checkpoint; move it away, or restore again"
    except OSError as error:
        done.left[path] = error.strerror or "it cannot be written"


def _remove(root: Path, path: str, now: Known) -> None:
    *parents, name = path.split("/")
    with open_folder(root, tuple(parents)) as folder:
        _require_unchanged(folder, name, path, now)
        os.unlink(name, dir_fd=folder)
        os.fsync(folder)
    _remove_empty(root, tuple(parents))


def _remove_empty(root: Path, parts: tuple[str, ...]) -> None:
    """Folders are not kept, only files: one that has lost its last file goes with it."""
    with suppress(OSError):
        while parts:
            with open_folder(root, parts[:-1]) as folder:
                os.rmdir(parts[-1], dir_fd=folder)
            parts = parts[:-1]


def _write(root: Path, path: str, entry: Entry, now: Known, data: bytes) -> None:
    *parents, name = path.split("/")
    with open_folder(root, tuple(parents), create=True) as folder:
        _require_unchanged(folder, name, path, now)
        draft = f"{TEMPORARY}{secrets.token_hex(8)}"
        try:
            if stat.S_ISLNK(entry.mode):
                os.symlink(data, os.fsencode(draft), dir_fd=folder)
            else:
                _fill(os.open(draft, _NEW, 0o600, dir_fd=folder), data, entry.mode & 0o777)
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with suppress(OSError):
                os.unlink(draft, dir_fd=folder)
            raise
        os.fsync(folder)


def _fill(file: int, data: bytes, mode: int) -> None:
    with open(file, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fchmod(file, mode)
        os.fsync(file)


def _require_unchanged(folder: int, name: str, path: str, now: Known) -> None:
    try:
        found = stamp_of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        found = None
    seen = now.get(path)
    if found is not None and (seen is None or found != seen.stamp):
        raise _Changed

"""Keeps what is locked in the files of a workspace, and puts it back if a tool run has changed it."""

import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import structlog

from gateway.domain.text.locks import locked_parts
from gateway.workspace.descent import open_file
from gateway.workspace.locks.restoring import put_back
from gateway.workspace.pages import read_bytes
from gateway.workspace.paths import READ_ONLY, WorkspaceError, WorkspacePath, folded

MAX_BYTES = 1024 * 1024
"""Of a file whose locked text is kept; what is longer is protected from write tools only."""
MAX_ENTRIES = 50_000
"""Files and folders that are looked through."""
PERSONA = ("AGENTS.md", "SOUL.md", "TOOLS.md", "USER.md", "HEARTBEAT.md")
_PERSONA_PATHS = (*PERSONA, *(f".agents/{name}" for name in PERSONA))

NOTE_SECONDS = 86_400.0
REPLACED = "replaced"
"""Of the data folder: where copies are kept of what was in the place of locked text."""

_NOT_SEARCHED = READ_ONLY | {"uploads", "tool-results", ".git", "node_modules", ".venv"}
_PINNED = (".agents", "skills")
"""A skill is confirmed byte for byte, and off once it changed."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """A file with locked text, as it was when no tool ran."""

    data: bytes
    mode: int
    mtime_ns: int


class OwnerEdits:
    """Notes of another process, such as the command line's: contents that the owner has just put into a file.

    They are in the gateway's data folder, where no tool can write.
    """

    def __init__(self, data: Path) -> None:
        self._folder = data / "owner-edits"

    def note(self, data: bytes) -> None:
        """Before the file is written."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in self._folder.iterdir():
            if old.stat().st_mtime < time.time() - NOTE_SECONDS:
                old.unlink(missing_ok=True)
        (self._folder / hashlib.sha256(data).hexdigest()).touch(mode=0o600)

    def take(self, data: bytes) -> bool:
        """Whether it is noted; a note counts once, so that nothing brings back an older version."""
        try:
            (self._folder / hashlib.sha256(data).hexdigest()).unlink()
        except OSError:
            return False
        return True


class Keeper:
    """The locked files of one workspace. Every method blocks; the caller lets one run at a time.

    What was in the place of locked text is copied to `aside`, one file for each path. `whole`: all of a persona file
    counts as locked, because the jail of commands cannot make it read-only.
    """

    def __init__(self, root: Path, aside: Path, edits: OwnerEdits, *, whole: bool = False) -> None:
        self._root, self._aside, self._edits = root, aside, edits
        self._whole = frozenset(_PERSONA_PATHS if whole else ())
        self._kept: dict[str, Kept] = {}
        self._plain: dict[str, tuple[int, ...]] = {}
        """Files without markers, and how they looked then."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that have locked text, sorted."""
        return tuple(sorted(self._kept))

    def find(self) -> None:
        """Look for files with markers that aren't known yet."""
        plain: dict[str, tuple[int, ...]] = {}
        for path, state in _files(self._root):
            if path not in self._kept and self._plain.get(path) != state:
                self.accept(path)
            if path not in self._kept:
                plain[path] = state
        self._plain = plain

    def renew(self) -> None:
        """Take the files as they are now: no tool runs, so it was the owner who changed them."""
        for path in {*self._kept, *_PERSONA_PATHS}:
            self.accept(path)

    def accept(self, path: str) -> None:
        """Take one file as it is now."""
        found = _look(self._root, path)
        if found and found != self._kept.get(path):
            self._edits.take(found.data)
        if found and (path in self._whole or locked_parts(found.data)):
            self._kept[path] = found
        else:
            self._kept.pop(path, None)

    def check(self) -> Sequence[str]:
        """Put back every locked text that was changed, file by file; returns the paths of those."""
        return [path for path, kept in list(self._kept.items()) if not self._unchanged(path, kept)]

    def _unchanged(self, path: str, kept: Kept) -> bool:
        found = _look(self._root, path)
        if found == kept:
            return True
        if found and found.mode == kept.mode and self._locked(path, found) == self._locked(path, kept):
            if found.data != kept.data:
                self._kept[path] = found
                return True
            with suppress(OSError):  # only its time was changed
                put_back(self._root, path, kept.data, kept.mode, kept.mtime_ns)
            return True
        if found and self._edits.take(found.data):
            self.accept(path)
            return True
        self._restore(path, kept, found)
        return False

    def _locked(self, path: str, file: Kept) -> Sequence[bytes]:
        return [file.data] if path in self._whole else locked_parts(file.data)

    def _restore(self, path: str, kept: Kept, found: Kept | None) -> None:
        if found and found.data != kept.data:
            with suppress(OSError):  # a full disk must not keep the text from being put back
                self._aside.mkdir(mode=0o700, parents=True, exist_ok=True)
                (self._aside / path.replace("/", "__")[-200:]).write_bytes(found.data)
        try:
            put_back(self._root, path, kept.data, kept.mode, kept.mtime_ns)
        except OSError:
            log.exception("locks.not_restored", path=path)
        else:
            log.warning("locks.restored", path=path)


def note_all(root: Path, data: Path) -> None:
    """Note that the owner has put locked text and instructions there as they are now, by restoring, say. Blocks."""
    for path, _ in _files(root):
        if (found := _look(root, path)) and (path in _PERSONA_PATHS or locked_parts(found.data)):
            OwnerEdits(data).note(found.data)


def _look(root: Path, path: str) -> Kept | None:
    """The file; None if it is missing, too long, or not a plain file that can be read."""
    with suppress(OSError, WorkspaceError), open_file(root, WorkspacePath.parse(path)) as file:
        data, status = read_bytes(file, MAX_BYTES + 1), os.fstat(file)
        return Kept(data, stat.S_IMODE(status.st_mode), status.st_mtime_ns) if len(data) <= MAX_BYTES else None
    return None


def _files(root: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the files that are looked through, by path, with what a write to them changes."""
    seen = 0
    for folder, folders, names in os.walk(root):
        parts = Path(folder).relative_to(root).parts
        folders[:] = sorted(each for each in folders if _searched((*parts, each)))
        seen += len(folders) + len(names)
        if seen > MAX_ENTRIES:
            log.warning("locks.too_many_files", searched=MAX_ENTRIES)
            return
        for name in names:
            with suppress(OSError):
                status = os.lstat(os.path.join(folder, name))
                if status.st_size <= MAX_BYTES:
                    yield (
                        "/".join((*parts, name)),
                        (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns),
                    )


def _searched(parts: tuple[str, ...]) -> bool:
    return folded(parts[-1]) not in _NOT_SEARCHED and parts != _PINNED

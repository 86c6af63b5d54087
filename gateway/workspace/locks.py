"""Locked text, which only the owner may change: found in the files, checked after every tool run, and restored.

A change between runs is the owner's; a change during a run is not.
"""

import asyncio
import hashlib
import os
import re
import stat
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import structlog

from gateway.domain.files import locked_parts
from gateway.workspace.files.access import new_file, open_file, open_folder, replacing, temporary_name
from gateway.workspace.files.disk import FileState, walk
from gateway.workspace.files.pages import read_bytes
from gateway.workspace.files.paths import INSTRUCTIONS, READ_ONLY, WorkspaceError, WorkspacePath, folded
from gateway.workspace.files.tree import Workspace

REPLACED_MARK = ".replaced-"
"""In the new name of a folder that stood in a file's place, of a link in a folder's, of instructions put aside."""


def put_back(root: Path, path: str, data: bytes, mode: int, mtime_ns: int) -> None:
    """Make the file anew and rename it into its place, for its inode may be linked elsewhere. Raises `OSError`."""
    *parents, name = path.split("/")
    os.chmod(root, stat.S_IMODE(root.stat().st_mode) | stat.S_IRWXU)
    for depth, parent in enumerate(parents):
        with open_folder(root, tuple(parents[:depth])) as above:
            _make_usable(above, parent)
    with open_folder(root, tuple(parents)) as folder:
        _move_aside(folder, name, keeps=stat.S_ISREG)
        with replacing(folder, name) as draft:
            with new_file(folder, draft, mode) as file:
                os.fchmod(file.fileno(), mode)
                file.write(data)
            os.utime(draft, ns=(mtime_ns, mtime_ns), dir_fd=folder, follow_symlinks=False)


def _make_usable(above: int, name: str) -> None:
    """Make a folder that is missing or something else; give its owner the rights to one that is closed."""
    _move_aside(above, name, keeps=stat.S_ISDIR)
    with suppress(FileExistsError):
        os.mkdir(name, 0o777, dir_fd=above)
    status = os.stat(name, dir_fd=above, follow_symlinks=False)
    if status.st_mode & stat.S_IRWXU != stat.S_IRWXU:
        os.chmod(name, stat.S_IMODE(status.st_mode) | stat.S_IRWXU, dir_fd=above)


def _move_aside(folder: int, name: str, *, keeps: Callable[[int], bool]) -> None:
    """Rename what isn't of the kind that belongs there: that takes no longer for a folder of a million files."""
    with suppress(FileNotFoundError):
        if not keeps(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            os.rename(name, f"{name[:100]}{REPLACED_MARK}{temporary_name()[-8:]}", src_dir_fd=folder, dst_dir_fd=folder)


MAX_LOCKED_BYTES = 1024 * 1024
"""Of a file whose locked text is kept; what is longer is protected from write tools only."""
MAX_ENTRIES = 50_000
"""Files and folders that are looked through."""
PERSONA = ("AGENTS.md", "SOUL.md", "TOOLS.md", "USER.md", "HEARTBEAT.md")
_PERSONA_PATHS = (*PERSONA, *(f".agents/{name}" for name in PERSONA))

NOTE_SECONDS = 86_400.0
REPLACED = "replaced"
"""Of the data folder: where copies are kept of what was in the place of locked text."""

_NOT_SEARCHED = READ_ONLY | {"uploads", "tool-results", ".git", "node_modules", ".venv"}
_FOLDERS = (".agents/agents", ".agents/skills", ".agents/tools", ".agents/workflows")
_PINNED = (".agents", "skills")
"""A skill is confirmed byte for byte, and off once it changed."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LockedFile:
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


class LockKeeper:
    """The locked files of one workspace. Every method blocks; the caller lets one run at a time.

    What was in the place of locked text is copied to `aside`, one file for each path. `whole`: all of an instruction
    file counts as locked, because the jail of commands cannot make it read-only. No jail can do so with one that isn't
    there: what appears while a command runs is renamed.
    """

    def __init__(self, root: Path, aside: Path, edits: OwnerEdits, *, whole: bool = False) -> None:
        self._root, self._aside, self._edits = root, aside, edits
        self._whole = whole
        self._there: set[tuple[str, int]] | None = None
        """Instructions by path and kind, without folders, as they were when a command began; None: none runs."""
        self._kept: dict[str, LockedFile] = {}
        self._plain: dict[str, FileState] = {}
        """Files without markers, and how they looked then."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that have locked text, sorted."""
        return tuple(sorted(self._kept))

    def find(self) -> None:
        """Look for files with markers that aren't known yet."""
        plain: dict[str, FileState] = {}
        for path, state in _files(self._root):
            made = self._there is not None and _is_instructions(path)
            if path not in self._kept and self._plain.get(path) != state and not made:
                self._keep(path)
            if path not in self._kept:
                plain[path] = state
        self._plain = plain

    def renew(self) -> None:
        """Take the files as they are now: no tool runs, so it was the owner who changed them."""
        self._there = None
        for path in {*self._kept, *_PERSONA_PATHS}:
            self._keep(path)

    def begin_command(self) -> None:
        """Look as `find` does, and from now until `renew` let nothing appear among the instructions.

        Their folders are made, since the jail can make only what is there read-only.
        """
        for name in _FOLDERS:
            with suppress(OSError):
                os.makedirs(self._root / name, exist_ok=True)
        self.find()
        self._there = _instructions(self._root) if self._there is None else self._there

    def accept(self, path: str) -> None:
        """Take one file as it is now: the owner or the gateway has written it."""
        self._keep(path)
        if self._there is not None:
            there = os.path.lexists(self._root / path)
            (self._there.add if there else self._there.discard)((path, stat.S_IFREG))

    def _keep(self, path: str) -> None:
        found = _look(self._root, path)
        if found and found != self._kept.get(path):
            self._edits.take(found.data)
        if found and (self._is_whole(path) or locked_parts(found.data)):
            self._kept[path] = found
        else:
            self._kept.pop(path, None)

    def check(self) -> Sequence[str]:
        """Put back every locked text that was changed, file by file, and rename instructions that a command has made.

        Returns the paths of the former, and the new names of the latter.
        """
        restored = [path for path, kept in list(self._kept.items()) if not self._unchanged(path, kept)]
        made = _instructions(self._root) - self._there if self._there is not None and self._root.is_dir() else ()
        return [*restored, *(name for path, _ in sorted(made) if (name := self._put_aside(path)))]

    def _put_aside(self, path: str) -> str:
        """Rename it into the top folder; returns the new name, "" if it is gone or the owner's."""
        if (found := _look(self._root, path)) and self._edits.take(found.data):
            self.accept(path)
            return ""
        shown = re.sub(r"[^\w.-]+", "_", path, flags=re.ASCII)[-100:]  # nobody else's words in a notice to the owner
        aside, (*parents, name) = f"{shown}{REPLACED_MARK}{temporary_name()[-8:]}", path.split("/")
        with suppress(OSError), open_folder(self._root, ()) as top, open_folder(self._root, tuple(parents)) as folder:
            os.rename(name, aside, src_dir_fd=folder, dst_dir_fd=top)
            return aside
        return ""

    def _is_whole(self, path: str) -> bool:
        return self._whole and _is_instructions(path) and not path.startswith("/".join((*_PINNED, "")))

    def _unchanged(self, path: str, kept: LockedFile) -> bool:
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

    def _locked(self, path: str, file: LockedFile) -> Sequence[bytes]:
        return [file.data] if self._is_whole(path) else locked_parts(file.data)

    def _restore(self, path: str, kept: LockedFile, found: LockedFile | None) -> None:
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


def note_owner_edits(root: Path, data: Path) -> None:
    """Note that the owner has put locked text and instructions there as they are now, by restoring, say. Blocks."""
    for path, _ in _files(root):
        if (found := _look(root, path)) and (_is_instructions(path) or locked_parts(found.data)):
            OwnerEdits(data).note(found.data)


def _is_instructions(path: str) -> bool:
    return WorkspacePath(tuple(path.split("/"))).is_instructions


def _instructions(root: Path) -> set[tuple[str, int]]:
    """All that the agent may follow as instructions, by any name that a file system takes for it: paths and kinds."""
    found = walk(root, lambda parts: len(parts) == 1 and folded(parts[0]) not in INSTRUCTIONS, lambda *_: None)
    return {(each.path, stat.S_IFMT(each.status.st_mode)) for each in found}


def _look(root: Path, path: str) -> LockedFile | None:
    """The file; None if it is missing, too long, or not a plain file that can be read."""
    with suppress(OSError, WorkspaceError), open_file(root, WorkspacePath.parse(path)) as file:
        data, status = read_bytes(file, MAX_LOCKED_BYTES + 1), os.fstat(file)
        found = LockedFile(data, stat.S_IMODE(status.st_mode), status.st_mtime_ns)
        return found if len(data) <= MAX_LOCKED_BYTES else None
    return None


def _files(root: Path) -> Iterator[tuple[str, FileState]]:
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
                if status.st_size <= MAX_LOCKED_BYTES:
                    yield "/".join((*parts, name)), FileState.of(status)


def _searched(parts: tuple[str, ...]) -> bool:
    return folded(parts[-1]) not in _NOT_SEARCHED and parts != _PINNED


TellOwner: TypeAlias = Callable[[Sequence[str]], Awaitable[None]]
"""Tells the owner in which files locked text was put back."""


class LockWatch:
    """Of one workspace. `tell` never raises."""

    def __init__(self, workspace: Workspace, keeper: LockKeeper, tell: TellOwner) -> None:
        self._workspace, self._keeper, self._tell = workspace, keeper, tell
        workspace.accept, workspace.settle = keeper.accept, self.check
        self._turning = asyncio.Lock()
        self._running = 0

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[list[str], None]:
        """Hold this while a tool runs, and as long as a process lives that one has started.

        A change of locked text meanwhile is put back; after the block the list has the paths of those files.
        """
        restored: list[str] = []
        async with self._turning:
            if not self._running:
                await self._workspace.in_writer(self._keeper.renew)
            self._running += 1
        try:
            yield restored
        finally:
            await asyncio.shield(self._ended(restored))

    async def files(self) -> tuple[str, ...]:
        """The files that have locked text, from the workspace root: read-only for the command that is about to run.

        Until the last tool has ended, what then appears among the instructions is put aside.
        """
        await self.check()  # what another command has made must not be found as the owner's
        async with self._turning:
            await self._workspace.in_writer(self._keeper.begin_command)
        return self._keeper.paths

    @property
    def paths(self) -> tuple[str, ...]:
        """Those that are known by now."""
        return self._keeper.paths

    @asynccontextmanager
    async def between_runs(self) -> AsyncGenerator[bool, None]:
        """Whether no tool runs, so that what is locked is the owner's; none begins before the end of the block."""
        async with self._turning:
            yield not self._running

    async def check(self) -> Sequence[str]:
        """Put back what was changed while tools run; returns the paths. Without one it is the owner's."""
        async with self._turning:
            restored = await self._workspace.in_writer(self._keeper.check) if self._running else ()
        if restored:
            await self._tell(restored)
        return restored

    async def _ended(self, restored: list[str]) -> None:
        try:
            restored += await self.check()
        finally:
            self._running -= 1

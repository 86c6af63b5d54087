"""The workspace as the agent sees it: reads pages, lists one folder, replaces whole files."""

import asyncio
import hashlib
import os
import shutil
import stat
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from gateway.domain.errors import raising
from gateway.domain.files import locked_parts, may_write
from gateway.domain.principals import Label
from gateway.domain.work.todo_lists import FILE, TODO
from gateway.workspace.files.access import (
    TEMPORARY_PREFIX,
    Quota,
    explained_errors,
    moving,
    open_file,
    open_folder,
    replace_file,
)
from gateway.workspace.files.disk import Written
from gateway.workspace.files.index import FileIndex
from gateway.workspace.files.pages import MOST, Page, Piece, decode_text, page_of, read_bytes, read_piece
from gateway.workspace.files.paths import INSTRUCTIONS, WorkspaceError, WorkspacePath, folded

MAX_WRITE_BYTES = 5 * 1024 * 1024
MAX_LISTED = 500
LOCKED = (
    "{path} has text that only its owner may change; nothing was written. Change only what is between "
    "<!-- AI:OPEN --> and <!-- /AI:OPEN -->, and keep everything else, markers included, byte for byte."
)
NO_MARKERS = "CORE:LOCK and AI:OPEN markers are set by the owner only; {path} was not written. Leave the markers out."
HIDES = "{path} would hide .agents/{path}, which has locked text; nothing was written. Edit that file instead."

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of a folder; `other` is a link, a device or a name that no tool can open. `size` is in bytes."""

    name: str
    kind: Literal["file", "folder", "other"]
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A folder's entries, sorted; `left_out` counts those that are not listed, `label` is of the names."""

    entries: tuple[Listed, ...]
    left_out: int
    label: Label = Label.UNTRUSTED


class Labels:
    """The trust labels of a workspace's files. Where no agent works, every file is its owner's."""

    async def of(self, _path: str, _sha256: str) -> Label:
        """The label of a content that was found at this path."""
        return Label.OWNER

    async def of_names(self, _folder: str) -> Label:
        """The label of the names in a folder."""
        return Label.OWNER

    async def less_trusted(self, _hashes: Collection[str]) -> Mapping[str, Label]:
        """The contents that are known to be trusted less than their owner's."""
        return {}

    async def begin_command(self, _hashes: Collection[str]) -> None:
        """Take these for the owner's unless labelled; until `end_command` all else without a label is untrusted."""

    async def end_command(self, _hashes: Collection[str]) -> None:
        """Label these as untrusted if nobody has labelled them."""

    async def note_change(self) -> None:
        """Note that something trusted less than the person has changed the files, is about to, or may have."""

    async def last_change(self) -> tuple[str, bool]:
        """A value that each `note_change` replaces, and whether other processes may change files without one."""
        return "", False

    async def note(self, _file: Written, _label: Label, _mime: str) -> None:
        """Commit the label of what is about to be written; with a `mime` it becomes one of the listed files."""


async def _settled() -> None:
    """No program runs on these files."""


async def _unheard(_label: Label, _filed: bool) -> None:
    """No program runs on these files."""


class Workspace:
    """Files below `root`, by relative path; nothing outside is accessible, no link is followed.

    Every method raises `WorkspaceError`. Writes run one at a time, in the order of the calls. The label of a content
    is committed before the content is there to be read: what a crash breaks off is trusted no more than it should be.
    """

    def __init__(self, root: Path, labels: Labels | None = None, index: Path | None = None) -> None:
        self.root = root
        self.index = FileIndex(root, index)
        """Kept in the file `index`, if given."""
        self.labels = labels or Labels()
        self.quota: Quota | None = None
        self.before_edit: Callable[[bytes], None] = lambda _data: None
        """Called before a content that is not the agent's is put in place, and `accept` with its path afterwards."""
        self.accept: Callable[[str], None] = lambda _path: None
        self.settle: Callable[[], Awaitable[object]] = _settled
        """Awaited before instructions are read: a command that runs may have made some."""
        self.noted: Callable[[Label, bool], Awaitable[None]] = _unheard
        """Called when a content has this label and is about to be written, or a run with this label deletes a file.

        The flag says whether it is by the owner's or the gateway's own hand. `writing` is held.
        """
        self.writing = asyncio.Lock()
        # One thread: parallel edits of one file must not overwrite each other, even if one is cancelled half-way.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="workspace-write")

    async def page(self, path: str, offset: int = 0, limit: int = 64 * 1024) -> Page | None:
        """Read about `limit` bytes of a text file from byte `offset`; None if it does not exist."""
        where = WorkspacePath.parse(path)

        def read(file: int) -> Page:
            return page_of(read_piece(file, limit, offset), where, offset)

        page = await asyncio.to_thread(self._read, where, read)
        return page and replace(page, label=await self.labels.of(str(where), page.sha256))

    def head(self, path: str, limit: int, most: int = MOST) -> Piece | None:
        """Read the first `limit` bytes of a file of at most `most`; None if there is no file. Blocks."""
        return self._read(WorkspacePath.parse(path), lambda file: read_piece(file, limit, most=most))

    def size(self, path: str) -> int:
        """The size of a file in bytes; raises `WorkspaceError` if there is none. Blocks."""
        where = WorkspacePath.parse(path)
        with explained_errors(where), open_file(self.root, where) as file:
            return os.fstat(file).st_size

    async def content(self, path: str, limit: int) -> bytes | None:
        """Read the first `limit` bytes; None if the file does not exist."""
        return await asyncio.to_thread(self._read, WorkspacePath.parse(path), lambda file: read_bytes(file, limit))

    async def copy(self, path: str, target: Path) -> None:
        """Copy a file to a path outside the workspace."""
        await asyncio.to_thread(self._copy, WorkspacePath.parse(path), target)

    async def listing(self, path: str = ".", most: int = MAX_LISTED) -> Listing:
        """List the direct entries of a folder."""
        where = WorkspacePath.parse(path)
        found = await asyncio.to_thread(self._listing, where, most)
        return replace(found, label=await self.labels.of_names(str(where)))

    def is_instructions(self, path: str) -> bool:
        """Whether the agent follows this file as instructions, under whatever name the file system takes for it."""
        where = WorkspacePath.parse(path)
        return where.is_instructions or (bool(where.parts) and self._another_name(where.parts[0]))

    def _another_name(self, name: str) -> bool:
        with suppress(OSError):
            found = os.stat(self.root / name, follow_symlinks=False)
            known = [each for each in os.scandir(self.root) if folded(each.name) in INSTRUCTIONS]
            return any(os.path.samestat(found, each.stat(follow_symlinks=False)) for each in known)
        return False

    async def write(
        self, path: str, content: str | bytes, label: Label, mime: str = "", *, unlocked: bool = False
    ) -> Written:
        """Create or replace a file and the folders above it; at most `MAX_WRITE_BYTES`.

        `label` is that of whose words it is; with a `mime` it becomes one of the listed files. `unlocked` is for the
        owner's and the gateway's own hand: the agent can neither change what is locked nor set markers.
        """
        where = _writable(path, gateway=unlocked)
        data = content if isinstance(content, bytes) else _encode(content, where)
        async with self.writing:
            return await self._put(where, data, label, mime, unlocked=unlocked)

    async def update(
        self, path: str, change: Callable[[str], str], label: Label, mime: str = "", *, unlocked: bool = False
    ) -> Written:
        """Replace a text file with the result of `change`, trusted no more than the text before and `label`.

        If `change` raises, nothing is written. `unlocked` is as in `write`.
        """
        where = _writable(path, gateway=unlocked)

        def changed() -> tuple[bytes, str]:
            text, sha256 = self._whole(where)
            return _encode(change(text), where), sha256

        async with self.writing:
            data, before = await self.in_writer(changed)
            label = max(label, await self.labels.of(str(where), before))
            return await self._put(where, data, label, mime, unlocked=unlocked)

    async def remove(self, path: str, label: Label = Label.UNTRUSTED, *, unlocked: bool = False) -> None:
        """Delete a file, and the folder above it if that is empty; nothing happens if there is none.

        `label` is that of the run; `unlocked` is as in `write`.
        """
        where = _writable(path, gateway=unlocked)
        async with self.writing:
            if not unlocked:
                await self.noted(label, False)
            await self.in_writer(lambda: self._remove(where, unlocked=unlocked))

    async def move(self, path: str, to: str, label: Label, mime: str, *, unlocked: bool = False) -> Written:
        """Give a file another path, where nothing is yet; it is trusted no more than before, and than `label`.

        `unlocked` is as in `write`.
        """
        where, target = _writable(path, gateway=unlocked), _writable(to, gateway=unlocked)
        async with self.writing:
            sha256, size = await self.in_writer(lambda: self._movable(where, target, unlocked=unlocked))
            moved = Written(str(target), size, sha256)
            await self._note(moved, max(label, await self.labels.of(str(where), sha256)), mime, unlocked=unlocked)
            await self.in_writer(lambda: self._move(where, target, unlocked=unlocked))
        return moved

    def check_locked(self, path: str, data: bytes) -> None:
        """Raise `WorkspaceError` if the agent may not make this the content of the file. Blocks."""
        where = WorkspacePath.parse(path)
        before = self._read(where, lambda file: read_bytes(file, MAX_WRITE_BYTES))
        if not may_write(before or b"", data):
            raise WorkspaceError("locked", (LOCKED if locked_parts(before or b"") else NO_MARKERS).format(path=where))
        if before is None and len(where.parts) == 1 and where.is_instructions and self._hides_locked(where):
            raise WorkspaceError("locked", HIDES.format(path=where))

    def _hides_locked(self, path: WorkspacePath) -> bool:
        """Whether a file of this name in the root would be read instead of one in `.agents` that has locked text."""
        with suppress(OSError, WorkspaceError), open_folder(self.root, (".agents",)) as folder:
            for name in (each for each in os.listdir(folder) if folded(each) == folded(path.name)):
                hidden = self._read(WorkspacePath((".agents", name)), lambda file: read_bytes(file, MAX_WRITE_BYTES))
                if locked_parts(hidden or b""):
                    return True
        return False

    async def _put(self, path: WorkspacePath, data: bytes, label: Label, mime: str, *, unlocked: bool) -> Written:
        _check_size(data, path)
        written = Written(str(path), len(data), hashlib.sha256(data).hexdigest())
        await self._note(written, label, mime, unlocked=unlocked)
        await self.in_writer(lambda: self._write(path, data, unlocked=unlocked))
        return written

    async def _note(self, file: Written, label: Label, mime: str, *, unlocked: bool) -> None:
        await self.labels.note(file, label, mime)
        await self.noted(label, unlocked)

    async def in_writer(self, work: Callable[[], Found]) -> Found:
        """Run what blocks in the thread that writes, so that nothing is written meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    def _read(self, path: WorkspacePath, read: Callable[[int], Found]) -> Found | None:
        with explained_errors(path), suppress(FileNotFoundError), open_file(self.root, path) as file:
            return read(file)
        return None

    def _copy(self, path: WorkspacePath, target: Path) -> None:
        with (
            explained_errors(path),
            open_file(self.root, path) as file,
            open(file, "rb", closefd=False) as stream,
            target.open("xb") as copy,
        ):
            shutil.copyfileobj(stream, copy)

    def _whole(self, path: WorkspacePath) -> tuple[str, str]:
        """Its text and its hash."""
        with explained_errors(path), open_file(self.root, path) as file:
            raw = read_bytes(file, MAX_WRITE_BYTES + 1)
        _check_size(raw, path)
        return decode_text(raw, path), hashlib.sha256(raw).hexdigest()

    def _write(self, path: WorkspacePath, data: bytes, *, unlocked: bool) -> None:
        if unlocked:
            self.before_edit(data)
        else:
            self.check_locked(str(path), data)
        with explained_errors(path), open_folder(self.root, path.parents, create=0o777) as folder:
            if self.quota:
                self.quota.reserve(len(data))
            replace_file(folder, path, data)
        if unlocked or path.is_instructions:
            self.accept(str(path))

    def _movable(self, path: WorkspacePath, to: WorkspacePath, *, unlocked: bool) -> tuple[str, int]:
        """The hash of the file and its size."""
        for each in () if unlocked else (path, to):
            self.check_locked(str(each), b"")
        with explained_errors(path), open_file(self.root, path) as file, open(file, "rb", closefd=False) as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest(), os.fstat(file).st_size

    def _move(self, path: WorkspacePath, to: WorkspacePath, *, unlocked: bool) -> None:
        with moving(self.root, path, path.parents, to.parents) as (above, below):
            with raising(WorkspaceError("exists", f"{to} exists already; nothing was moved."), FileExistsError):
                os.link(path.name, to.name, src_dir_fd=above, dst_dir_fd=below, follow_symlinks=False)
            os.unlink(path.name, dir_fd=above)
            os.fsync(below)
            os.fsync(above)
        for each in (each for each in (path, to) if unlocked or each.is_instructions):
            self.accept(str(each))

    def _remove(self, path: WorkspacePath, *, unlocked: bool) -> None:
        if not unlocked:
            self.check_locked(str(path), b"")
        with explained_errors(path), suppress(FileNotFoundError), open_folder(self.root, path.parents) as folder:
            os.unlink(path.name, dir_fd=folder)
            os.fsync(folder)
            if unlocked or path.is_instructions:
                self.accept(str(path))
        with suppress(OSError), open_folder(self.root, path.parents[:-1]) as above:
            os.rmdir(path.parents[-1] if path.parents else "", dir_fd=above)

    def _listing(self, path: WorkspacePath, most: int) -> Listing:
        with explained_errors(path), open_folder(self.root, path.parts) as folder:
            names = sorted(name for name in os.listdir(folder) if not name.startswith(TEMPORARY_PREFIX))
            entries = tuple(entry for name in names[:most] if (entry := _listed(folder, name)))
        return Listing(entries, max(0, len(names) - most))


def _listed(folder: int, name: str) -> Listed | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None
    shown = name.encode("utf-8", "replace").decode()
    if not _reachable(name):
        return Listed(shown, "other", status.st_size)
    if stat.S_ISDIR(status.st_mode):
        return Listed(shown, "folder", 0)
    return Listed(shown, "file" if stat.S_ISREG(status.st_mode) else "other", status.st_size)


def _reachable(name: str) -> bool:
    with suppress(WorkspaceError):
        return WorkspacePath.parse(name).parts == (name,)
    return False


def _writable(text: str, *, gateway: bool) -> WorkspacePath:
    path = WorkspacePath.parse(text)
    if not path.parts:
        raise WorkspaceError("bad_path", "The path is empty; name a file, like notes/ideas.md.")
    if path.read_only:
        raise WorkspaceError("read_only", f"{path} belongs to the gateway and is read-only; write to another folder.")
    if not gateway and tuple(map(folded, path.parts)) == tuple(FILE.split("/")):
        raise WorkspaceError("read_only", f"The gateway writes {path}; change your list with the tool {TODO}.")
    return path


def _encode(text: str, path: WorkspacePath) -> bytes:
    invalid = WorkspaceError("binary", f"The text for {path} has an invalid character; use valid Unicode.")
    with raising(invalid, UnicodeEncodeError):
        return text.encode()


def _check_size(data: bytes, path: WorkspacePath) -> None:
    if len(data) > MAX_WRITE_BYTES:
        limit = MAX_WRITE_BYTES // 1024 // 1024
        raise WorkspaceError("too_large", f"{path} would be larger than {limit} MB; split it into smaller files.")

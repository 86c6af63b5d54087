"""The workspace as the agent sees it: reads pages, lists one folder, replaces whole files."""

import asyncio
import hashlib
import os
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from gateway.workspace.atomic import TEMPORARY, replace_file
from gateway.workspace.descent import explained, open_file, open_folder
from gateway.workspace.pages import Page, decode_text, read_bytes, read_page
from gateway.workspace.paths import INSTRUCTIONS, WorkspaceError, WorkspacePath, folded

MAX_WRITE_BYTES = 5 * 1024 * 1024
MAX_LISTED = 500

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of a folder; `other` is a link, a device or a name that no tool can open. `size` is in bytes."""

    name: str
    kind: Literal["file", "folder", "other"]
    size: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A folder's entries, sorted; `left_out` counts those beyond the first `MAX_LISTED`."""

    entries: tuple[Listed, ...]
    left_out: int


@dataclass(frozen=True, slots=True)
class Written:
    """The file as written; `path` is normalised."""

    path: str
    size: int
    sha256: str


class Workspace:
    """Files below `root`, by relative path; nothing outside is accessible, no link is followed.

    Every method raises `WorkspaceError`. Writes run one at a time, in the order of the calls.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        # One thread: parallel edits of one file must not overwrite each other, even if one is cancelled half-way.
        self._writer = ThreadPoolExecutor(max_workers=1, thread_name_prefix="workspace-write")

    async def page(self, path: str, offset: int = 0, limit: int = 64 * 1024) -> Page | None:
        """Read about `limit` bytes of a text file from byte `offset`; None if it does not exist."""
        where = WorkspacePath.parse(path)
        return await asyncio.to_thread(self._read, where, lambda file: read_page(file, where, offset, limit))

    def head(self, path: str, limit: int) -> str | None:
        """Read the first `limit` bytes, replacing invalid ones; None if there is no file. Blocks: small files only."""
        found = self._read(WorkspacePath.parse(path), lambda file: read_bytes(file, limit))
        return None if found is None else found.decode("utf-8", "replace")

    async def content(self, path: str, limit: int) -> bytes | None:
        """Read the first `limit` bytes; None if the file does not exist."""
        return await asyncio.to_thread(self._read, WorkspacePath.parse(path), lambda file: read_bytes(file, limit))

    async def copy(self, path: str, target: Path) -> None:
        """Copy a file to a path outside the workspace."""
        await asyncio.to_thread(self._copy, WorkspacePath.parse(path), target)

    async def listing(self, path: str = ".") -> Listing:
        """List the direct entries of a folder."""
        return await asyncio.to_thread(self._listing, WorkspacePath.parse(path))

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

    async def write(self, path: str, content: str | bytes) -> Written:
        """Create or replace a file and the folders above it; at most `MAX_WRITE_BYTES`."""
        where = _writable(path)
        data = content if isinstance(content, bytes) else _encode(content, where)
        return await self._in_writer(lambda: self._write(where, data))

    async def update(self, path: str, change: Callable[[str], str]) -> Written:
        """Replace a text file with the result of `change`; if it raises, nothing is written."""
        where = _writable(path)
        return await self._in_writer(lambda: self._write(where, _encode(change(self._whole(where)), where)))

    async def _in_writer(self, work: Callable[[], Written]) -> Written:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work)

    def _read(self, path: WorkspacePath, read: Callable[[int], Found]) -> Found | None:
        with explained(path), suppress(FileNotFoundError), open_file(self.root, path) as file:
            return read(file)
        return None

    def _copy(self, path: WorkspacePath, target: Path) -> None:
        with (
            explained(path),
            open_file(self.root, path) as file,
            open(file, "rb", closefd=False) as stream,
            target.open("xb") as copy,
        ):
            shutil.copyfileobj(stream, copy)

    def _whole(self, path: WorkspacePath) -> str:
        with explained(path), open_file(self.root, path) as file:
            raw = read_bytes(file, MAX_WRITE_BYTES + 1)
        _check_size(raw, path)
        return decode_text(raw, path)

    def _write(self, path: WorkspacePath, data: bytes) -> Written:
        _check_size(data, path)
        with explained(path), open_folder(self.root, path.parents, create=0o777) as folder:
            replace_file(folder, path, data)
        return Written(str(path), len(data), hashlib.sha256(data).hexdigest())

    def _listing(self, path: WorkspacePath) -> Listing:
        with explained(path), open_folder(self.root, path.parts) as folder:
            names = sorted(name for name in os.listdir(folder) if not name.startswith(TEMPORARY))
            entries = tuple(entry for name in names[:MAX_LISTED] if (entry := _listed(folder, name)))
        return Listing(entries, max(0, len(names) - MAX_LISTED))


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


def _writable(text: str) -> WorkspacePath:
    path = WorkspacePath.parse(text)
    if not path.parts:
        raise WorkspaceError("bad_path", "The path is empty; name a file, like notes/ideas.md.")
    if path.read_only:
        raise WorkspaceError("read_only", f"{path} belongs to the gateway and is read-only; write to another folder.")
    return path


def _encode(text: str, path: WorkspacePath) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise WorkspaceError("binary", f"The text for {path} has an invalid character; use valid Unicode.") from error


def _check_size(data: bytes, path: WorkspacePath) -> None:
    if len(data) > MAX_WRITE_BYTES:
        limit = MAX_WRITE_BYTES // 1024 // 1024
        raise WorkspaceError("too_large", f"{path} would be larger than {limit} MB; split it into smaller files.")

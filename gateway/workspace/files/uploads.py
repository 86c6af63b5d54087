"""Uploads: safe names for received files, and receiving a file that gets its name once it's complete."""

import asyncio
import hashlib
import mimetypes
import os
import re
import time
import unicodedata
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Set
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from io import BufferedWriter
from pathlib import Path

from gateway.workspace.files.access import (
    NEW_FLAGS,
    TEMPORARY_PREFIX,
    explained_errors,
    moving,
    open_folder,
    temporary_name,
)
from gateway.workspace.files.disk import measure
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath

TEXT_SUFFIX, PAGES_SUFFIX = ".txt", ".pages"
"""Suffixes of a file's extracted text and of the folder of its pages."""
MAX_UPLOAD_NAME_BYTES = 150
"""The most bytes of a name; the suffixes of derived files need room."""
MAX_VARIANTS = 10_000

_SEPARATORS = re.compile(r"[/\\]")
_UNSAFE = re.compile(r'[<>:"|?*\[\]`]')


def mime_of(path: str) -> str:
    """The type of a file of the workspace by its name; text where that tells none."""
    return mimetypes.guess_type(path)[0] or "text/plain"


def safe_name(name: str, mime: str = "") -> str:
    """The last part of a name, without invisible and special characters; never empty or hidden."""
    last = _SEPARATORS.split(unicodedata.normalize("NFC", name).rstrip("/\\"))[-1]
    seen = "".join(" " if unicodedata.category(char)[0] in "CZ" else char for char in last)
    clean = " ".join(_UNSAFE.sub("_", seen).split()).strip(". ")
    if not clean:
        clean = f"file{mimetypes.guess_extension(mime) or ''}"
    stem, extension = _split(clean)
    fitting = stem.encode()[: MAX_UPLOAD_NAME_BYTES - len(extension.encode())].decode("utf-8", "ignore")
    return f"{fitting.rstrip('. ')}{extension}"


def name_candidates(name: str) -> Iterator[str]:
    """Yield the name, then the name with -2, -3 … before its extension."""
    yield name
    stem, extension = _split(name)
    for number in range(2, MAX_VARIANTS):
        yield f"{stem}-{number}{extension}"


def is_taken(name: str, names: Set[str]) -> bool:
    """Whether the name, or that of a file derived from it, is in use, or the name is that of another's derived file."""
    beside = any(name.endswith(suffix) and name.removesuffix(suffix) in names for suffix in (TEXT_SUFFIX, PAGES_SUFFIX))
    return beside or not names.isdisjoint({name, name + TEXT_SUFFIX, name + PAGES_SUFFIX})


def _split(name: str) -> tuple[str, str]:
    stem, dot, extension = name.rpartition(".")
    return (stem, f".{extension}") if stem and dot and len(extension.encode()) <= 20 else (name, "")


UPLOADS = "uploads"
STALE_SECONDS = 3600.0
"""A temporary file not written to for this long was left by a crash."""

_HERE = WorkspacePath((UPLOADS,))


@dataclass(frozen=True, slots=True)
class Incoming:
    """A completely received file without a final name; `size` is in bytes."""

    root: Path
    temporary: str
    size: int
    sha256: str

    def settle(self, day: str, name: str) -> str:
        """Give the file a free name like `name`, or find the same content from an earlier try; returns its path.

        Blocks. Raises `WorkspaceError`.
        """
        folder = WorkspacePath((UPLOADS, day))
        with moving(self.root, folder, _HERE.parts, folder.parts) as (above, below):
            names = set(os.listdir(below))
            for candidate in name_candidates(name):
                if self._settled(above, below, candidate, names) or self._is(below, f"{folder}/{candidate}", names):
                    os.fsync(below)
                    os.fsync(above)
                    return f"{folder}/{candidate}"
        raise WorkspaceError("exists", f"{folder} has too many files named like {name}.")

    def _settled(self, above: int, below: int, name: str, names: Set[str]) -> bool:
        if is_taken(name, names):
            return False
        with suppress(FileExistsError):
            os.link(self.temporary, name, src_dir_fd=above, dst_dir_fd=below, follow_symlinks=False)
            return True
        return False

    def _is(self, below: int, path: str, names: Set[str]) -> bool:
        """Whether the file there has the same content, and is not the extracted text of another file."""
        name = path.rpartition("/")[2]
        try:
            alike = os.stat(name, dir_fd=below, follow_symlinks=False).st_size == self.size
        except FileNotFoundError:
            return False
        beside = name.endswith(TEXT_SUFFIX) and name.removesuffix(TEXT_SUFFIX) in names
        return alike and not beside and unchanged(self.root, path, self.sha256)


@asynccontextmanager
async def received(root: Path, pieces: AsyncIterator[bytes], most: int) -> AsyncGenerator[Incoming, None]:
    """Receive the whole file to disk; it is deleted after the block unless it was settled.

    Raises `WorkspaceError`, with code `too_large` for more than `most` bytes, and any error of `pieces`.
    """
    temporary = temporary_name()
    async with _opened(root, temporary) as file:
        digest, size = hashlib.sha256(), 0
        async for piece in pieces:
            size += len(piece)
            if size > most:
                raise WorkspaceError("too_large", f"it is larger than {most / 1024**2:g} MB")
            digest.update(piece)
            with explained_errors(_HERE):
                await asyncio.to_thread(file.write, piece)
        with explained_errors(_HERE):
            await asyncio.to_thread(_sync, file)
        yield Incoming(root, temporary, size, digest.hexdigest())


@asynccontextmanager
async def _opened(root: Path, temporary: str) -> AsyncGenerator[BufferedWriter, None]:
    """A temporary file, deleted afterwards, even if the caller is cancelled while a thread still creates it."""
    opening = asyncio.ensure_future(asyncio.to_thread(_begin, root, temporary))
    try:
        yield await asyncio.shield(opening)
    finally:
        await asyncio.wait([opening])
        if opening.exception() is None:
            with suppress(OSError):  # a full disk was already reported by the write
                await asyncio.to_thread(opening.result().close)
        await asyncio.to_thread(_discard, root, temporary)


def unchanged(root: Path, path: str, sha256: str) -> bool:
    """Whether the file exists with this content. Blocks."""
    with suppress(WorkspaceError, FileNotFoundError):
        return measure(root, path, 2**63).sha256 == sha256
    return False


def _begin(root: Path, temporary: str) -> BufferedWriter:
    with explained_errors(_HERE), open_folder(root, _HERE.parts, create=0o777) as folder:
        stale = time.time() - STALE_SECONDS
        for name in (each for each in os.listdir(folder) if each.startswith(TEMPORARY_PREFIX)):
            with suppress(OSError):
                if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime < stale:
                    os.unlink(name, dir_fd=folder)
        return open(os.open(temporary, NEW_FLAGS, 0o666, dir_fd=folder), "wb")


def _sync(file: BufferedWriter) -> None:
    file.flush()
    os.fsync(file.fileno())


def _discard(root: Path, temporary: str) -> None:
    with suppress(OSError), open_folder(root, _HERE.parts) as folder:
        os.unlink(temporary, dir_fd=folder)

"""Copies of a workspace's files: all of them for a run that must change nothing, or a folder as one zip."""

import os
import shutil
import time
import zipfile
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.workspace.files.access import TEMPORARY_PREFIX, explained_errors, open_file, open_folder
from gateway.workspace.files.paths import MAX_LEVELS, WorkspaceError, WorkspacePath

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


NOT_COPIED = ("sessions", "memory", "todo")
"""Folders that the gateway writes itself."""
COPY_SECONDS = 7 * 86_400.0


def copy_workspace(root: Path, copies: Path, name: str) -> None:
    """Make `copies/name` from `root`, unless it is there. Copies of a week ago are deleted. Links are not followed."""
    if (copies / name).exists():
        return
    copies.mkdir(parents=True, exist_ok=True, mode=0o700)
    for old in copies.iterdir():
        if old.lstat().st_mtime < time.time() - COPY_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    half = copies / f".{name}"
    shutil.rmtree(half, ignore_errors=True)
    shutil.copytree(root, half, symlinks=True, ignore=lambda at, _: NOT_COPIED if Path(at) == root else ())
    half.touch()  # it has the age of the folder that it was made from
    half.rename(copies / name)


MAX_ZIP_FILES = 10_000
MAX_ZIP_BYTES = 1024**3

_CHUNK = 256 * 1024


@dataclass(frozen=True, slots=True)
class ZipMember:
    """A file of the zip; it is cut at `size` if it grows meanwhile."""

    path: WorkspacePath
    size: int
    changed: float


class _Sink(RawIOBase):
    """Where the zip is written; `take` empties it. It can't seek, so sizes follow the contents."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: "ReadableBuffer") -> int:
        piece = memoryview(data)
        self._waiting += piece
        return len(piece)

    def take(self) -> bytes:
        taken = bytes(self._waiting)
        self._waiting.clear()
        return taken


def zip_members(root: Path, folder: str) -> list[ZipMember]:
    """The plain files below a folder, by path; links, devices and names that no tool can open are left out.

    Raises `WorkspaceError`, with code `too_large` beyond `MAX_FILES` and `MAX_BYTES`. Blocks.
    """
    top, found, size = WorkspacePath.parse(folder), list[ZipMember](), 0
    with explained_errors(top), open_folder(root, top.parts) as opened:
        for place, folders, names, _ in os.fwalk(dir_fd=opened):
            inside = tuple(part for part in Path(place).parts if part != ".")
            folders[:] = sorted(folders) if len(inside) < MAX_LEVELS else []
            for name in sorted(each for each in names if not each.startswith(TEMPORARY_PREFIX)):
                with suppress(OSError, WorkspaceError):
                    path = WorkspacePath.parse("/".join((*top.parts, *inside, name)))
                    with open_file(root, path) as file:
                        status = os.fstat(file)
                    found.append(ZipMember(path, status.st_size, status.st_mtime))
                    size += status.st_size
            if len(found) > MAX_ZIP_FILES or size > MAX_ZIP_BYTES:
                limits = f"{MAX_ZIP_FILES:,} files and {MAX_ZIP_BYTES / 1024**3:g} GB"
                raise WorkspaceError("too_large", f"{top} is too large for one zip; the limits are {limits}.")
    return found


def zipped(root: Path, folder: str, files: list[ZipMember]) -> Generator[bytes, None, None]:
    """Yield the zip piece by piece; a file that is gone meanwhile is left out. Blocks between pieces."""
    sink, above = _Sink(), len(WorkspacePath.parse(folder).parts)
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for member in files:
            with suppress(OSError, WorkspaceError), open_file(root, member.path) as file:
                name = "/".join(member.path.parts[above:])
                yield from _added(archive, sink, zipfile.ZipInfo(name, _date(member.changed)), file, member.size)
    yield sink.take()


def _added(
    archive: zipfile.ZipFile, sink: _Sink, info: zipfile.ZipInfo, file: int, left: int
) -> Generator[bytes, None, None]:
    info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    with archive.open(info, "w", force_zip64=left > zipfile.ZIP64_LIMIT // 2) as target:
        while left > 0 and (chunk := os.read(file, min(_CHUNK, left))):
            left -= len(chunk)
            target.write(chunk)
            yield sink.take()


def _date(changed: float) -> tuple[int, int, int, int, int, int]:
    """As a zip can hold it: from 1980 to 2107."""
    at = time.gmtime(min(max(changed, 315_532_800.0), 4_354_819_198.0))
    return at.tm_year, at.tm_mon, at.tm_mday, at.tm_hour, at.tm_min, at.tm_sec

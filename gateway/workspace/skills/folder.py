"""A skill: its files as bytes, from the disk or an archive, within bounds, and what its SKILL.md says."""

import io
import os
import shutil
import stat
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from gateway.domain.errors import raising, required
from gateway.workspace.files.access import READ_FLAGS, open_folder
from gateway.workspace.files.disk import FileState
from gateway.workspace.files.pages import read_bytes
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath, folded
from gateway.workspace.skills.parsing import BadSkill, Skill, parse

FOLDER = (".agents", "skills")
MAX_FILES, MAX_FILE, MAX_BYTES, MAX_DEPTH = 300, 8 * 2**20, 16 * 2**20, 8
MAX_SKILLS, MAX_ENTRIES = 500, 20_000
"""Folders that are looked at; and files of an archive, for a repository holds more than the skill."""
MANIFESTS = ("SKILL.md", "skill.md")

_SMALLER = "Delete what it can do without, such as fonts and pictures, and install it from that folder."

Files: TypeAlias = Mapping[str, bytes]
"""Contents by path, which is relative to the skill's folder."""
Stamp: TypeAlias = tuple[tuple[str, FileState], ...]


def digest(files: Files) -> str:
    """Of every name and every byte."""
    total = sha256()
    for path, data in sorted(files.items()):
        total.update(f"{len(path.encode())}:{path}:{sha256(data).hexdigest()}\n".encode())
    return total.hexdigest()


def manifest(files: Files) -> str:
    """The path of its SKILL.md; raises `BadSkill`."""
    return required(next((name for name in MANIFESTS if name in files), None), BadSkill("There is no SKILL.md in it."))


def pack(files: Files) -> bytes:
    """All of it as one archive, from which `unpack` makes the same again."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in sorted(files.items()):
            archive.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)
    return target.getvalue()


def entries(data: bytes) -> list[str]:
    """The names of the files in an archive; raises `BadSkill`."""
    with _archive(data) as archive:
        return [each.filename for each in archive.infolist() if not each.is_dir()]


def unpack(data: bytes, below: str = "") -> Files:
    """The files of an archive below a folder of it, which is `""` or ends with a slash; raises `BadSkill`."""
    with _archive(data) as archive:
        chosen = [each for each in archive.infolist() if each.filename.startswith(below) and not each.is_dir()]
        _count(len(chosen), sum(each.file_size for each in chosen))
        return checked([(each.filename[len(below) :], _unpacked(archive, each)) for each in chosen])


def checked(found: list[tuple[str, bytes]]) -> Files:
    """The files by path; raises `BadSkill` if a path is not plain or distinct, or if they exceed a limit."""
    files: dict[str, bytes] = {}
    names: set[str] = set()
    for path, data in found:
        try:
            where = WorkspacePath.parse(path)
        except WorkspaceError as error:
            raise BadSkill(f"{path[:80]!r} cannot be a file's name: {error}") from error
        if str(where) != path or not 0 < len(where.parts) <= MAX_DEPTH:
            raise BadSkill(f"{path[:80]!r} is not a plain path of at most {MAX_DEPTH} parts.")
        names.add("/".join(map(folded, where.parts)))
        files[path] = data
        _count(len(files), sum(map(len, files.values())))
        if len(data) > MAX_FILE:
            raise _too_large(path)
    if len(names) < len(found):
        raise BadSkill("Two of its files have names that some file systems treat as the same.")
    return files


def names(root: Path, at: tuple[str, ...] = FOLDER) -> list[str]:
    """Of the folders that may be skills, sorted."""
    with suppress(OSError), open_folder(root, at) as folder:
        found = [each.name for each in os.scandir(folder) if not each.is_file(follow_symlinks=False)]
        return sorted(name for name in found if not name.startswith("."))[:MAX_SKILLS]
    return []


def read(root: Path, name: str, at: tuple[str, ...] = FOLDER) -> Files:
    """Every file of a skill on the disk; raises `BadSkill`, also for links and devices, and `FileNotFoundError`."""
    found: list[tuple[str, bytes]] = []
    for folder, path, status in _walk(root, (*at, name)):
        if status.st_size > MAX_FILE:
            raise _too_large(path)
        with open(os.open(path.rpartition("/")[2], READ_FLAGS, dir_fd=folder), "rb", 0) as file:
            found.append((path, read_bytes(file.fileno(), MAX_FILE + 1)))
        _count(len(found), sum(len(data) for _, data in found))
    return checked(found)


def stamp(root: Path, name: str, at: tuple[str, ...] = FOLDER) -> Stamp:
    """Differs when a file was written since, without reading any; raises what `read` raises."""
    return tuple((path, FileState.of(status)) for _, path, status in _walk(root, (*at, name)))


def remove(root: Path, name: str, at: tuple[str, ...] = FOLDER) -> None:
    """Delete a skill's folder, if there is one. Follows no links."""
    with suppress(FileNotFoundError), open_folder(root, at) as folder:
        if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            shutil.rmtree(name, dir_fd=folder)
        else:
            os.unlink(name, dir_fd=folder)


def _walk(root: Path, top: tuple[str, ...]) -> Iterator[tuple[int, str, os.stat_result]]:
    """Yield each file with the open folder it is in, in an order that does not change."""
    waiting: list[tuple[str, ...]] = [()]
    seen = 0
    while waiting:
        below = waiting.pop()
        with open_folder(root, (*top, *below)) as folder:
            inside = sorted(os.listdir(folder))
            seen += len(inside)
            if seen > 2 * MAX_FILES or len(below) >= MAX_DEPTH:
                raise BadSkill(f"It has more than {MAX_FILES} files, or folders {MAX_DEPTH} deep.")
            for each in inside:
                status, path = os.stat(each, dir_fd=folder, follow_symlinks=False), "/".join((*below, each))
                if stat.S_ISDIR(status.st_mode):
                    waiting.append((*below, each))
                elif stat.S_ISREG(status.st_mode):
                    yield folder, path, status
                else:
                    raise BadSkill(f"{path[:80]!r} is a link or a device, not a plain file.")


_DAMAGE = (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError)


def _archive(data: bytes) -> zipfile.ZipFile:
    damaged = BadSkill("It isn't a zip archive, or it's damaged.")
    with raising(damaged, *_DAMAGE, IndexError):
        archive = zipfile.ZipFile(io.BytesIO(data))
    if len(archive.infolist()) > MAX_ENTRIES:
        raise BadSkill(f"The archive has more than {MAX_ENTRIES:,} files.")
    return archive


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """Never more than a skill may have, whatever the archive says of its sizes."""
    if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
        raise BadSkill(f"{entry.filename[:80]!r} is a link or a device, not a plain file.")
    damaged = BadSkill(f"{entry.filename[:80]!r} cannot be unpacked.")
    with raising(damaged, *_DAMAGE, RuntimeError, zlib.error), archive.open(entry) as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise _too_large(entry.filename)
    return data


def _count(files: int, size: int) -> None:
    if files > MAX_FILES or size > MAX_BYTES:
        raise BadSkill(f"A skill has at most {MAX_FILES} files and {MAX_BYTES >> 20} MB; this one has more. {_SMALLER}")


def _too_large(path: str) -> BadSkill:
    return BadSkill(f"{path[:80]!r} is larger than {MAX_FILE >> 20} MB. {_SMALLER}")


def skill_of(files: Files) -> Skill:
    """Parse the SKILL.md among its files; raises `BadSkill`."""
    with raising(BadSkill("Its SKILL.md is not UTF-8 text; save it as UTF-8."), UnicodeDecodeError):
        return parse(files[manifest(files)].decode())

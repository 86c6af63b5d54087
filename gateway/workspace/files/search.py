"""Finds files by their names, and lines in files: a job for a process of its own, since a pattern may take forever."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from gateway.domain.errors import OwnerMustAct
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.workspace.files.access import TEMPORARY_PREFIX, open_file
from gateway.workspace.files.pages import read_bytes
from gateway.workspace.files.paths import MAX_LEVELS, WorkspaceError, WorkspacePath
from gateway.workspace.files.tree import Workspace

MAX_BYTES = 5 * 1024 * 1024
"""Of a file that is read."""
MAX_FILES = 20_000
MAX_LINE = 300
"""Characters of a line that are shown."""

_NOT_SEARCHED = frozenset({".git", "node_modules", ".venv"})


@dataclass(frozen=True, slots=True)
class FoundLines:
    """The result of a search: a path, line and text per match, and the hash of each file that a line is from."""

    matches: list[dict[str, str | int]]
    files: dict[str, str]
    more: bool


def search_files(root: str, under: str, pattern: str, glob: str | None, limit: int, regex: bool) -> JsonObject:
    """The first `limit` lines that have a text, in whatever case, or fit a `regex`; in order of their paths.

    `files` has the hash of each file that a line is from. Binary files are skipped.
    """
    try:
        finds = re.compile(pattern) if regex else re.compile(re.escape(pattern), re.IGNORECASE)
    except re.error as error:
        raise OwnerMustAct(f"the pattern is not a regular expression: {error}") from error
    found: list[JsonObject] = []
    hashes: dict[str, str] = {}
    read = 0
    for path in _files(Path(root), WorkspacePath.parse(under)):
        if (glob and not fits_glob(path, glob)) or (data := _text(Path(root), path)) is None:
            continue
        read += 1
        for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), start=1):
            if hit := finds.search(line):
                hashes[path] = hashlib.sha256(data).hexdigest()
                found.append({"path": path, "line": number, "text": _around(line, hit)})
        if len(found) > limit or read >= MAX_FILES:
            break
    return {"matches": found[:limit], "files": hashes, "more": len(found) > limit or read >= MAX_FILES}


def fits_glob(path: str, glob: str) -> bool:
    """Whether the pattern, such as *.md or notes/*.md, fits the path or its last part."""
    return fnmatchcase(path, glob) or fnmatchcase(path.rpartition("/")[2], glob)


def _around(line: str, hit: re.Match[str]) -> str:
    start = max(0, min(hit.start() - MAX_LINE // 3, len(line) - MAX_LINE))
    return line[start : start + MAX_LINE]


def _files(root: Path, under: WorkspacePath) -> Iterator[str]:
    """Yield what is below a folder, or the file itself; no link is followed."""
    top = root.joinpath(*under.parts)
    if any(root.joinpath(*under.parts[:depth]).is_symlink() for depth in range(1, len(under.parts) + 1)):
        return
    if top.is_file():
        yield str(under)
    for folder, folders, names in os.walk(top):
        parts = Path(folder).relative_to(root).parts
        folders[:] = sorted(each for each in folders if each not in _NOT_SEARCHED and len(parts) < MAX_LEVELS)
        for name in sorted(names):
            if not name.startswith(TEMPORARY_PREFIX):
                yield "/".join((*parts, name))


def _text(root: Path, path: str) -> bytes | None:
    with suppress(OSError, WorkspaceError), open_file(root, WorkspacePath.parse(path)) as file:
        if os.fstat(file).st_size <= MAX_BYTES:
            data = read_bytes(file, MAX_BYTES)
            return None if b"\0" in data[:8192] else data
    return None


MOST_NAMES = 10_000
"""In one folder that is looked through."""


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """The files, sorted; `label` is that of all names in their folders and in those that were looked through.

    What doesn't fit tells something, too.
    """

    paths: list[str]
    label: Label


async def files_named(workspace: Workspace, pattern: str) -> NamedFiles:
    """The files that a pattern names; of one without `*?[` the path itself, whether it is there or not.

    Raises `WorkspaceError`: `not_found` if nothing fits, `too_large` if a folder has too many names.
    """
    *above, last = WorkspacePath.parse(pattern).parts or (".",)
    folders, label, open_ended = [""], Label.OWNER, False
    for part in above:
        found = await _matching(workspace, folders, part, "folder", missing=open_ended)
        folders, label, open_ended = found.paths, max(label, found.label), open_ended or _is_pattern(part)
    found = await _matching(workspace, folders, last, "file", missing=open_ended)
    if not found.paths:
        raise WorkspaceError("not_found", f"No file matches {pattern}.")
    return NamedFiles(found.paths, max(label, found.label))


async def _matching(workspace: Workspace, folders: list[str], part: str, kind: str, *, missing: bool) -> NamedFiles:
    """Paths that match `part` in the folders; `missing`: a pattern found the folders, so some may lack it."""
    paths, label, end = list[str](), Label.OWNER, "/" if kind == "folder" else ""
    if not missing and not _is_pattern(part):
        [folder] = folders
        names = label if kind == "folder" else await workspace.labels.of_names(folder or ".")
        return NamedFiles([f"{folder}{part}{end}"], names)
    for folder in folders:
        listing = await workspace.listing(folder or ".", MOST_NAMES)
        if listing.left_out:
            raise WorkspaceError("too_large", f"{folder or 'The workspace'} has more than {MOST_NAMES:,} names.")
        label = max(label, listing.label)
        fitting = (each.name for each in listing.entries if each.kind == kind and _fits(each.name, part))
        paths += [f"{folder}{name}{end}" for name in fitting]
    return NamedFiles(paths, label)


def _fits(name: str, part: str) -> bool:
    """Names that begin with a dot fit only what begins so, too."""
    return fnmatchcase(name, part) and (not name.startswith(".") or part.startswith("."))


def _is_pattern(part: str) -> bool:
    return any(letter in part for letter in "*?[")

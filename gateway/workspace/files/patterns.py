"""Files by pattern, as a shell names them: `*`, `?` and `[…]` in any part of a path, and never across parts."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from gateway.domain.principals import Label
from gateway.workspace.files.paths import WorkspaceError, WorkspacePath
from gateway.workspace.files.tree import Workspace

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

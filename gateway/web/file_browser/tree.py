"""The tree of the owner's files: one level at a time, and the folders above what is shown."""

from dataclasses import dataclass
from typing import Literal

from gateway.domain.principals import Label
from gateway.domain.text.locks import locked_parts
from gateway.workspace.files.paths import READ_ONLY, WorkspacePath, folded
from gateway.workspace.files.tree import Listed, Workspace
from gateway.workspace.files.uploads import UPLOADS

MAX_MARKED = 256 * 1024
"""Bytes of a Markdown file that is searched for locked text, to mark it in the tree."""


@dataclass(frozen=True, slots=True)
class Node:
    """A file or folder; a folder that is closed has no `branch`, `path` is empty if nothing can open it."""

    path: str
    name: str
    kind: Literal["file", "folder", "other"]
    size: int
    locked: bool = False
    branch: "Branch | None" = None


@dataclass(frozen=True, slots=True)
class Branch:
    """What is in one folder; `left_out` counts entries beyond the first, and `label` is of the names."""

    nodes: tuple[Node, ...]
    left_out: int
    label: Label


async def branch(workspace: Workspace, folder: WorkspacePath, opened: tuple[str, ...] = ()) -> Branch:
    """The entries of a folder, folders first; those on the way to what is `opened` have their own."""
    listing = await workspace.listing(str(folder))
    ordered = sorted(listing.entries, key=lambda entry: entry.kind != "folder")
    nodes = [await _node(workspace, folder, entry, opened) for entry in ordered]
    return Branch(tuple(nodes), listing.left_out, listing.label)


async def _node(workspace: Workspace, folder: WorkspacePath, entry: Listed, opened: tuple[str, ...]) -> Node:
    if entry.kind == "other":
        return Node("", entry.name, entry.kind, entry.size)
    path = WorkspacePath((*folder.parts, entry.name))
    below = (
        await branch(workspace, path, opened[1:]) if entry.kind == "folder" and opened[:1] == (entry.name,) else None
    )
    return Node(str(path), entry.name, entry.kind, entry.size, await _locked(workspace, path, entry), below)


async def _locked(workspace: Workspace, path: WorkspacePath, entry: Listed) -> bool:
    if entry.kind != "file" or entry.size > MAX_MARKED or not folded(entry.name).endswith(".md"):
        return False
    if folded(path.parts[0]) in READ_ONLY | {UPLOADS}:
        return False
    return bool(locked_parts(await workspace.content(str(path), MAX_MARKED) or b""))

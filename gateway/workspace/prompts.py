"""The persona files, which the owner and the agent edit, as text for the prompt."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from gateway.workspace.paths import WorkspaceError
from gateway.workspace.tree import Workspace

MAX_CHARS = 20_000
MAX_BYTES = 1024 * 1024
"""A longer file is not read at all, for it is hashed while a turn waits."""

_Stamp: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class PersonaFile:
    """One of the files as it was read; without a hash there is none, or it could not be read."""

    path: str = ""
    text: str = ""
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class PersonaText:
    """The files' texts; empty where there is no file. `shared` and `own` are what they came from."""

    agents: str = ""
    soul: str = ""
    tools: str = ""
    user: str = ""
    heartbeat: str = ""
    shared: tuple[PersonaFile, ...] = field(default=(), compare=False)
    own: PersonaFile = field(default=PersonaFile(), compare=False)


class Persona:
    """AGENTS, SOUL, TOOLS, USER and HEARTBEAT of a workspace; a file is read again only when it changed."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._read: Callable[[Workspace, str, _Stamp], PersonaFile] = lru_cache(maxsize=64)(_read)

    def load(self, user: Workspace | None = None) -> PersonaText:
        """The texts as they are now; a member's USER.md comes from the member's own files, given as `user`.

        Never raises: a file that cannot be read says so in its text.
        """
        shared = tuple(self._file(self._workspace, f"{name}.md") for name in ("AGENTS", "SOUL", "TOOLS", "HEARTBEAT"))
        own = self._file(user or self._workspace, "USER.md")
        agents, soul, tools, heartbeat = (file.text for file in shared)
        return PersonaText(agents, soul, tools, own.text, heartbeat, shared, own)

    def user(self, user: Workspace) -> str:
        """USER.md alone."""
        return self._file(user, "USER.md").text

    def _file(self, workspace: Workspace, name: str) -> PersonaFile:
        for path in (name, f".agents/{name}"):
            if stamp := _stamp(workspace, path):
                return self._read(workspace, path, stamp)
        return PersonaFile()


def clipped(text: str, path: str, most: int) -> str:
    """The file's text for a prompt, which says so itself where more than `most` characters were cut."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n\n[{path} is cut here: only its first {most:,} characters are shown.]"


def _stamp(workspace: Workspace, path: str) -> _Stamp | None:
    try:
        status = os.stat(workspace.root / path, follow_symlinks=False)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _read(workspace: Workspace, path: str, _stamp: _Stamp) -> PersonaFile:
    try:
        found = workspace.head(path, MAX_CHARS * 4, MAX_BYTES)
    except WorkspaceError as error:
        return PersonaFile(path, f"[{path} could not be read: {error}]")
    if found is None:
        return PersonaFile()
    text = found.data.decode("utf-8", "replace").strip()
    return PersonaFile(path, clipped(text, path, MAX_CHARS), found.sha256)

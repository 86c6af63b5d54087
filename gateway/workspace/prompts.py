"""The persona files, which the owner and the agent edit, as text for the prompt."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from gateway.workspace.paths import WorkspaceError
from gateway.workspace.tree import Workspace

MAX_CHARS = 20_000

_Stamp: TypeAlias = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class PersonaText:
    """The files' texts; empty where there is no file."""

    agents: str = ""
    soul: str = ""
    tools: str = ""
    user: str = ""
    heartbeat: str = ""


class Persona:
    """AGENTS, SOUL, TOOLS, USER and HEARTBEAT of a workspace; a file is read again only when it changed."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._read: Callable[[Workspace, str, _Stamp], str] = lru_cache(maxsize=64)(_read)

    def load(self, user: Workspace | None = None) -> PersonaText:
        """The texts as they are now; a member's USER.md comes from the member's own files, given as `user`.

        Never raises: a file that cannot be read says so in its text.
        """
        home = self._workspace
        return PersonaText(
            agents=self._text(home, "AGENTS.md"),
            soul=self._text(home, "SOUL.md"),
            tools=self._text(home, "TOOLS.md"),
            user=self.user(user or home),
            heartbeat=self._text(home, "HEARTBEAT.md"),
        )

    def user(self, user: Workspace) -> str:
        """USER.md alone."""
        return self._text(user, "USER.md")

    def _text(self, workspace: Workspace, name: str) -> str:
        for path in (name, f".agents/{name}"):
            if stamp := _stamp(workspace, path):
                return self._read(workspace, path, stamp)
        return ""


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


def _read(workspace: Workspace, path: str, _stamp: _Stamp) -> str:
    try:
        text = (workspace.head(path, MAX_CHARS * 4) or "").strip()
    except WorkspaceError as error:
        return f"[{path} could not be read: {error}]"
    return clipped(text, path, MAX_CHARS)

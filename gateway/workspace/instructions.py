"""The owner's instructions for the agent: the persona files, the time zone in USER.md, and the workflows for events."""

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from gateway.domain.conversation.model import PromptPart
from gateway.domain.principals import Label
from gateway.domain.time import is_zone
from gateway.domain.work.tasks import QUIET
from gateway.workspace.files.disk import FileState
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace

MAX_PERSONA_CHARS = 20_000
MAX_PERSONA_BYTES = 1024 * 1024
"""A longer file is not read at all, for it is hashed while a turn waits."""


@dataclass(frozen=True, slots=True)
class PersonaFile:
    """One of the files as it was read; without a hash there is none, or it could not be read."""

    path: str = ""
    text: str = ""
    sha256: str = ""


class PersonaFiles(NamedTuple):
    """All of them, in the order of the prompt; `own` is the person's USER.md."""

    agents: PersonaFile
    soul: PersonaFile
    tools: PersonaFile
    own: PersonaFile
    heartbeat: PersonaFile


class Persona:
    """AGENTS, SOUL, TOOLS, USER and HEARTBEAT of a workspace; a file is read again only when it changed."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._read: Callable[[Workspace, str, FileState], PersonaFile] = lru_cache(maxsize=64)(_read)

    def load(self, user: Workspace | None = None) -> PersonaFiles:
        """The files as they are now; a member's USER.md comes from the member's own files, given as `user`.

        Never raises: a file that cannot be read says so in its text.
        """
        read, own = partial(self._file, self.workspace), self._file(user or self.workspace, "USER.md")
        return PersonaFiles(read("AGENTS.md"), read("SOUL.md"), read("TOOLS.md"), own, read("HEARTBEAT.md"))

    def user(self, user: Workspace) -> str:
        """USER.md alone."""
        return self._file(user, "USER.md").text

    def _file(self, workspace: Workspace, name: str) -> PersonaFile:
        for path in (name, f".agents/{name}"):
            with suppress(OSError):
                return self._read(workspace, path, FileState.of(os.lstat(workspace.root / path)))
        return PersonaFile()


def clipped(text: str, path: str, most: int) -> str:
    """The file's text for a prompt, which says so itself where more than `most` characters were cut."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n\n[{path} is cut here: only its first {most:,} characters are shown.]"


def _read(workspace: Workspace, path: str, _state: FileState) -> PersonaFile:
    try:
        found = workspace.head(path, MAX_PERSONA_CHARS * 4, MAX_PERSONA_BYTES)
    except WorkspaceError as error:
        return PersonaFile(path, f"[{path} could not be read: {error}]")
    if found is None:
        return PersonaFile()
    text = found.data.decode("utf-8", "replace").strip()
    return PersonaFile(path, clipped(text, path, MAX_PERSONA_CHARS), found.sha256)


_LINE = re.compile(r"^[ \t>*+_-]*time[ _-]?zone[ *_]*[:=](.*)$", re.IGNORECASE | re.MULTILINE | re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_+/-]+", re.ASCII)


def zone_in(user: str) -> str | None:
    """The zone of the first line like "- Time zone: Europe/Berlin" with a known zone; None if there is none.

    Only IANA names count: other forms ("Berlin", "UTC+2") are ambiguous.
    """
    for line in _LINE.findall(user):
        names: list[str] = [name.strip("_") for name in _NAME.findall(line)]
        for name in (*names[:1], *(each for each in names if "/" in each)):
            if is_zone(name):
                return name
    return None


def with_zone(user: str, name: str) -> str:
    """The text with this zone in place of the one it names, else in its first line for one, else in a new line."""
    known = zone_in(user)
    for line in _LINE.finditer(user):
        said = line[0].rstrip()
        noted = f"{said} ({name})" if line[1].strip(" *_\t\r") else f"{said} {name}"
        noted = said.replace(known, name) if known else noted
        filled = f"{user[: line.start()]}{noted}{user[line.start() + len(said) :]}"
        if zone_in(filled) == name:
            return filled
    return f"{user.rstrip()}\n\n- Time zone: {name}\n"


SOURCE_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,63}$"
"""Valid names of a source; a source names a file."""

MAX_WORKFLOW_CHARS = 10_000


async def workflow(workspace: Workspace, source: str) -> PromptPart:
    """The instructions for a source; the built-in ones if its file is missing or empty.

    Never raises: a file that cannot be read is reported in the text.
    """
    path = f".agents/workflows/{source}.md"
    await workspace.settle()
    try:
        found = await asyncio.to_thread(workspace.head, path, MAX_WORKFLOW_CHARS * 4, MAX_PERSONA_BYTES)
    except WorkspaceError as error:
        return PromptPart(f"{built_in(source)}\n\n[{path} could not be read: {error}]", Label.OWNER)
    if found is None or not (text := found.data.decode("utf-8", "replace").strip()):
        return PromptPart(built_in(source), Label.OWNER)
    label = await workspace.labels.of(path, found.sha256)
    return PromptPart(clipped(text, path, MAX_WORKFLOW_CHARS), label, path, path, found.sha256)


def built_in(source: str) -> str:
    """The instructions for a source without a file of its own."""
    return (
        f"Something happened at {source}. Tell the user what matters about it, briefly; if nothing does, "
        f"answer exactly `{QUIET}`."
    )

"""`supaclaw export`: persona, skills, memories and transcripts, as Markdown and JSON lines for any program."""

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import indent
from typing import Annotated, Literal, TypeAlias

from gateway.agent.memory.remember import Remembering
from gateway.cli.connections.database import leak_guard, require_owner, with_database
from gateway.cli.storage.memories import exported_lines
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import argument, option
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct, explained
from gateway.domain.memory.memories import ALL_MEMORIES
from gateway.flow.journal import export as exporting
from gateway.store.connection.pool import Database
from gateway.workspace.files import copies
from gateway.workspace.files.paths import WorkspaceError
from gateway.workspace.files.tree import Workspace
from gateway.workspace.skills.folder import FOLDER

PERSONA = ("AGENTS", "SOUL", "TOOLS", "USER", "HEARTBEAT")

Clean = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Export:
    """A folder that is being filled; `clean` replaces the stored secrets in every text."""

    folder: Path
    clean: Clean

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file, readable by its owner alone. Bytes that are not text are written as they are."""
        to = self.folder / name
        to.parent.mkdir(parents=True, exist_ok=True)
        data = content.encode() if isinstance(content, str) else content
        with suppress(UnicodeDecodeError):
            data = self.clean(data.decode()).encode()
        with open(os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)


Program: TypeAlias = Literal["openclaw", "hermes", "letta", "markdown"]
"""A program whose files an export has, too."""


def export(
    folder: Annotated[Path, argument("A folder that does not exist yet.", "DIR")],
    to: Annotated[Program | None, option("Also lay the memories out as this program reads them.")] = None,
) -> None:
    """Write persona, skills, memories and transcripts to a folder."""
    with _new_folder(folder) as half:
        found = with_database(lambda database: _export(database, half, to))
    echo(f"{folder}: {found}")


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder that becomes `folder` after the block; a failure leaves nothing."""
    if os.path.lexists(folder):
        raise OwnerMustAct(f"{folder} already exists; name a folder that does not")
    half = folder.absolute().with_name(f".{folder.absolute().name}.{os.getpid()}")
    try:
        with explained(f"{folder} cannot be written"):
            half.mkdir(mode=0o700)
            yield half
            half.rename(folder)
    finally:
        shutil.rmtree(half, ignore_errors=True)


async def _export(database: Database, folder: Path, to: Program | None) -> str:
    into = Export(folder, await leak_guard(database))
    owner = (await database.read(require_owner)).id
    persona, skills = await _write_files(into, Workspace(Environment.read(os.environ).workspace))
    lines = await database.run(lambda tx: exported_lines(Remembering(tx, owner, ALL_MEMORIES, into.clean)))
    await asyncio.to_thread(into.write, "memories.jsonl", "".join(f"{line}\n" for line in lines))
    for name, content in _layout(to, lines, folder).items() if to else ():
        await asyncio.to_thread(into.write, name, content)
    transcripts = 0
    async for of, rows in exporting.transcripts(database, owner):
        transcripts += 1
        for name, content in exporting.transcript_files(of, rows, into.clean):
            await asyncio.to_thread(into.write, name, content)
    return f"{persona} persona files, {skills} files of skills, {len(lines)} memories, {transcripts} transcripts"


def _layout(to: Program, lines: list[str], folder: Path) -> dict[str, str]:
    """The files of that program with the memories that hold now and are trusted, and with the persona."""
    texts: dict[str, list[str]] = {}
    for row in map(json.loads, lines):
        if row["kind"] == "memory" and row["trust"] != "untrusted" and row["superseded_at"] is None:
            day = f" ({row['event_at'][:10]})" if row["event_at"] else ""
            texts.setdefault(row["category"], []).append(row["text"] + day)
    bullets = {name: "".join(f"- {indent(text, '  ').strip()}\n" for text in each) for name, each in texts.items()}
    sections = "\n".join(f"## {name.capitalize()}\n\n{each}" for name, each in bullets.items())
    entries = "\n§\n".join(text for each in texts.values() for text in each)
    files = {name: folder / f"{name}.md" for name in ("SOUL", "USER")}
    own = {name: file.read_text(errors="replace") if file.exists() else "" for name, file in files.items()}
    layouts: dict[Program, dict[str, str]] = {
        "markdown": {f"memories/{name}.md": f"# {name.capitalize()}\n\n{each}" for name, each in bullets.items()},
        "openclaw": {"MEMORY.md": f"# Memory\n\n{sections}"},
        "hermes": {"memories/MEMORY.md": f"{entries}\n", "memories/USER.md": own["USER"]},
        "letta": {"agent.af": _agent_file({"persona": own["SOUL"], "human": own["USER"], "memory": sections})},
    }
    return layouts[to]


def _agent_file(blocks: dict[str, str]) -> str:
    """An agent of Letta, whose memory are these blocks."""
    rows = [{"id": f"block-{label}", "label": label, "value": text} for label, text in blocks.items()]
    agent = {"id": "agent-0", "name": "supaclaw", "agent_type": "letta_v1_agent", "messages": []}
    agents, empty = [{**agent, "block_ids": [row["id"] for row in rows]}], ("groups", "files", "sources", "tools")
    return json.dumps({"agents": agents, "blocks": rows, **{name: [] for name in (*empty, "mcp_servers")}}, indent=1)


async def _write_files(into: Export, workspace: Workspace) -> tuple[int, int]:
    """Write the persona and the skills, without following links; returns the numbers of their files."""
    persona = [await _copy(into, workspace, (f"{name}.md", f".agents/{name}.md"), f"{name}.md") for name in PERSONA]
    try:
        found = await asyncio.to_thread(copies.zip_members, workspace.root, "/".join(FOLDER))
    except WorkspaceError as error:
        if error.code == "too_large":
            raise OwnerMustAct(str(error)) from error
        found = []  # there are no skills
    skills = [await _copy(into, workspace, (str(each.path),), "/".join(each.path.parts[1:])) for each in found]
    return sum(persona), sum(skills)


async def _copy(into: Export, workspace: Workspace, places: tuple[str, ...], name: str) -> bool:
    """Write the first of `places` that is a file as `name`; returns whether there is one."""
    for path in places:
        try:
            content = await workspace.content(path, copies.MAX_ZIP_BYTES)
        except WorkspaceError as error:
            raise OwnerMustAct(f"{path} can't be exported: {error}") from error
        if content is not None:
            await asyncio.to_thread(into.write, name, content)
            return True
    return False

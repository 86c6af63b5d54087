"""`supaclaw files search`, `move`, `delete` and `zip`: what the page's screen does with files, without a gateway."""

import asyncio
import os
import sys
import tempfile
from functools import partial
from typing import Annotated

import typer
from pydantic import TypeAdapter

from gateway.background.cpu.executor import run_alone
from gateway.cli.console import echo
from gateway.cli.database import with_database
from gateway.cli.output import AsJson, print_rows, save_copy
from gateway.cli.questions import confirm
from gateway.cli.storage.checkpoints import make_checkpoint
from gateway.cli.storage.workspace import labelled_workspace, owners_workspace
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.domain.principals import Label
from gateway.store.connection.pool import Database
from gateway.workspace.files.copies import zip_members, zipped
from gateway.workspace.files.paths import WorkspacePath
from gateway.workspace.files.search import FoundLines, search_files
from gateway.workspace.files.uploads import mime_of

SEARCH_SECONDS = 60.0
MAX_FOUND = 500


def find(
    pattern: Annotated[str, typer.Argument(metavar="TEXT", help="In whatever case.")],
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="A file or folder; default: the workspace.")] = ".",
    glob: Annotated[str | None, typer.Option(metavar="GLOB", help="Only files like *.md.")] = None,
    regex: Annotated[bool, typer.Option("--regex", help="TEXT is a regular expression.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find lines in text files."""
    root = str(Environment.read(os.environ).workspace)
    answer = asyncio.run(run_alone(search_files, root, path, pattern, glob, MAX_FOUND, regex, seconds=SEARCH_SECONDS))
    found = TypeAdapter(FoundLines).validate_python(answer)
    print_rows(found.matches, ("path", "line", "text"), as_json=as_json, none="No matches.")
    if found.more:
        echo(f"supaclaw: only the first {MAX_FOUND} lines are shown; name a folder or use --glob", error=True)


def move(
    path: Annotated[str, typer.Argument(metavar="PATH", help="From the workspace root, like notes/ideas.md.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="The new path.")],
) -> None:
    """Move or rename a file, after a checkpoint. Never overwrites one."""
    make_checkpoint("before a move")
    with_database(partial(_move, path, to))
    echo(f"moved {path} to {to}")


async def _move(path: str, to: str, database: Database) -> None:
    workspace = await labelled_workspace(database)
    await workspace.move(path, to, Label.OWNER, mime_of(to), unlocked=True)


def delete(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, from the workspace root.")],
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Delete files, after a checkpoint."""
    workspace = owners_workspace()
    for path in paths:
        workspace.size(path)
    if not yes:
        if not sys.stdin.isatty():
            raise OwnerMustAct("this deletes files of the workspace; add --yes to confirm")
        confirm(f"Delete {', '.join(paths)}? A checkpoint is made first.")
    make_checkpoint("before a deletion")
    for path in paths:
        asyncio.run(workspace.remove(path, unlocked=True))
        echo(f"deleted {path}")


def pack(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="A folder; default: the workspace.")] = ".",
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="PATH", help="Where to write it; - is standard output.")
    ] = ".",
) -> None:
    """Save a folder as a zip. Never overwrites a file."""
    root, name = Environment.read(os.environ).workspace, WorkspacePath.parse(path).name or "workspace"
    files = zip_members(root, path)
    with tempfile.TemporaryFile() as archive:
        archive.writelines(zipped(root, path, files))
        archive.seek(0)
        save_copy(archive, output, f"{name}.zip")

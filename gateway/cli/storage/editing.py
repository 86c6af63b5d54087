"""`supaclaw files tree`, `put` and `edit`: the workspace as its owner works on it, locked text included."""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from gateway.cli.console import echo
from gateway.cli.database import with_database
from gateway.cli.output import AsJson, print_rows
from gateway.cli.storage.workspace import labelled_workspace, owners_workspace
from gateway.domain.conversation.diff import difference
from gateway.domain.errors import OwnerMustAct
from gateway.domain.files import locked_parts
from gateway.domain.principals import Label
from gateway.store.connection.pool import Database
from gateway.workspace.files.tree import MAX_WRITE_BYTES, Listed
from gateway.workspace.files.uploads import mime_of

Where = Annotated[str, typer.Argument(metavar="PATH", help="From the workspace root, like notes/ideas.md.")]


@dataclass(frozen=True, slots=True)
class Row:
    """A file or folder; `locked` is "locked" if the file has markers."""

    path: str
    type: str
    size: int
    locked: str


def tree(
    path: Annotated[str, typer.Argument(metavar="[PATH]", help="A folder; default: the workspace.")] = ".",
    as_json: AsJson = False,
) -> None:
    """List all files below a folder, and which are locked."""
    rows = sorted(asyncio.run(_below(path)), key=lambda row: row.path)
    print_rows(rows, ("path", "type", "size", "locked"), as_json=as_json)


async def _below(top: str) -> list[Row]:
    found, waiting = list[Row](), [top]
    while waiting:
        folder = waiting.pop()
        for entry in (await owners_workspace().listing(folder)).entries:
            path = entry.name if folder == "." else f"{folder}/{entry.name}"
            found.append(Row(path, entry.kind, entry.size, await _badge(path, entry)))
            waiting += [path] if entry.kind == "folder" else []
    return found


async def _badge(path: str, entry: Listed) -> str:
    data = await owners_workspace().content(path, MAX_WRITE_BYTES) if entry.kind == "file" else None
    return "locked" if locked_parts(data or b"") else ""


def put(
    path: Where,
    source: Annotated[str, typer.Argument(metavar="[FILE]", help="What to write; default: standard input.")] = "-",
) -> None:
    """Write a file of the workspace, also one with locked text."""
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as error:
        raise OwnerMustAct(f"{source} can't be read: {error.strerror}") from error
    with_database(lambda database: _write(database, path, data))
    echo(f"wrote {path}")


def edit(path: Where) -> None:
    """Edit a file in $EDITOR. If it changes meanwhile, it isn't overwritten."""
    before = asyncio.run(owners_workspace().content(path, MAX_WRITE_BYTES))
    data = _edited(Path(path).name, before or b"")
    if data == (before or b""):
        echo("nothing was changed")
        return
    with_database(lambda database: _write_over(database, path, before, data))
    echo(f"wrote {path}")


def _edited(name: str, before: bytes) -> bytes:
    with tempfile.TemporaryDirectory(prefix="supaclaw-") as folder:
        draft = Path(folder) / name
        draft.write_bytes(before)
        try:
            subprocess.run([*shlex.split(os.environ.get("EDITOR") or "vi"), str(draft)], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise OwnerMustAct(f"the editor failed ({error}), nothing was written; EDITOR names another") from error
        return draft.read_bytes()


async def _write_over(database: Database, path: str, before: bytes | None, data: bytes) -> None:
    now = await owners_workspace().content(path, MAX_WRITE_BYTES)
    if now != before:
        mine = Path(f"{Path(path).name}.mine")
        await asyncio.to_thread(mine.write_bytes, data)
        texts = [text.decode("utf-8", "replace") for text in (now or b"", data)]
        raise OwnerMustAct(f"{path} has changed meanwhile; your text is in {mine}\n{difference(path, *texts)}")
    await _write(database, path, data)


async def _write(database: Database, path: str, data: bytes) -> None:
    workspace = await labelled_workspace(database)
    await workspace.write(path, data, Label.OWNER, mime_of(path), unlocked=True)

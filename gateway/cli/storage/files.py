"""`supaclaw files`, except `sync`: list, fetch, edit, search, move, delete, zip, unlock and vouch for files."""

import asyncio
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated
from uuid import UUID

from pydantic import TypeAdapter

from gateway.background.cpu.executor import Cpu, ScratchFolder, run_alone
from gateway.background.cpu.extraction import LockedFiles
from gateway.beside import afterwards
from gateway.cli.connections.database import require_owner, with_connection, with_database, with_owner
from gateway.cli.storage.workspace import labelled_workspace, make_checkpoint, owners_workspace
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import (
    AsJson,
    Limit,
    Output,
    Yes,
    argument,
    ask_secret_line,
    confirm_unless,
    flag,
    option,
    print_rows,
    save_copy,
)
from gateway.config.environment import Environment
from gateway.domain.conversation.diff import difference
from gateway.domain.errors import OwnerMustAct, explained, required
from gateway.domain.files import locked_parts
from gateway.domain.ids import FileId
from gateway.domain.principals import Label
from gateway.flow.labels import vouch as vouch_for
from gateway.store.connection.pool import Connection, Database
from gateway.store.files import files
from gateway.store.files.files import FileRow
from gateway.store.people import principals
from gateway.workspace.files.access import explained_errors, open_file
from gateway.workspace.files.copies import zip_members, zipped
from gateway.workspace.files.paths import WorkspacePath
from gateway.workspace.files.search import FoundLines, search_files
from gateway.workspace.files.tree import MAX_WRITE_BYTES, Workspace
from gateway.workspace.files.uploads import mime_of

TRUST = {Label.OWNER: "yours", Label.KNOWN: "known", Label.UNTRUSTED: "not vouched for"}
SHOWN_LINES = 3
"""Lines of a file that are printed before the owner vouches for it."""


def list_files(limit: Limit = 20, as_json: AsJson = False) -> None:
    """List files, newest first, and how trusted they are."""

    async def recent(conn: Connection) -> list[FileRow]:
        owner = await principals.owner(conn)
        return await files.recent(conn, owner.id, limit) if owner else []

    rows = [{**asdict(row), "trust": TRUST[row.label]} for row in with_connection(recent)]
    print_rows(rows, ("id", "path", "size", "trust"), as_json=as_json)


def vouch(paths: Annotated[list[str], argument("Files, from the workspace root.", "PATH")], yes: Yes = False) -> None:
    """Vouch for files as they are now; they then count as your own words."""
    workspace = Workspace(Environment.read(os.environ).workspace)
    hashes = {path: _print_head(workspace, path) for path in paths}
    confirm_unless(yes, "Do you vouch for their contents?", "look at the files; then add --yes to vouch for them")
    with_owner(lambda conn, owner: vouch_for(conn, owner, hashes, Label.OWNER))
    echo(f"vouched for {len(hashes)} file{'s' * (len(hashes) != 1)}; a new conversation (/new) trusts them")


def _print_head(workspace: Workspace, path: str) -> str:
    """Print size, time and first lines of a file; returns its hash."""
    head = required(workspace.head(path, 2_000), OwnerMustAct(f"there is no file {path} in {workspace.root}"))
    changed = datetime.fromtimestamp((workspace.root / str(WorkspacePath.parse(path))).stat().st_mtime, UTC)
    echo(f"{path}: {head.size} bytes, changed {changed:%Y-%m-%d %H:%M} UTC")
    for line in head.data.decode("utf-8", "replace").splitlines()[:SHOWN_LINES]:
        echo(f"    {line[:120]}")
    return head.sha256


def get(
    which: Annotated[str, argument("From the workspace root; or an id of the list.", "PATH|ID")], output: Output = "."
) -> None:
    """Copy a file out of the workspace. Never overwrites a file."""
    root, path = Environment.read(os.environ).workspace, WorkspacePath.parse(_path_of_id(which) or which)
    with explained_errors(path), open_file(root, path) as found, open(found, "rb", closefd=False) as file:
        save_copy(file, output, path.name)


def _path_of_id(which: str) -> str:
    """The path of a file that the list names by this id; "" if it isn't an id. Raises `OwnerMustAct`."""
    try:
        id = FileId(UUID(which))
    except ValueError:
        return ""
    row = with_owner(lambda conn, owner: files.by_id(conn, owner, id))
    return required(row, OwnerMustAct(f"there is no file {which}; `supaclaw files list` shows them")).path


Where = Annotated[str, argument("From the workspace root, like notes/ideas.md.", "PATH")]
Folder = Annotated[str, argument("A folder (default: the workspace).", "PATH", show_default=False)]


def tree(path: Folder = ".", as_json: AsJson = False) -> None:
    """List all files below a folder, and which are locked."""
    rows = sorted(asyncio.run(_tree_below(path)), key=lambda row: str(row["path"]))
    print_rows(rows, ("path", "type", "size", "locked"), as_json=as_json)


async def _tree_below(top: str) -> list[Mapping[str, object]]:
    """The files and folders below one; `locked` is "locked" if the file has locked parts."""
    found, waiting = list[Mapping[str, object]](), [top]
    while waiting:
        folder = waiting.pop()
        for entry in (await owners_workspace().listing(folder)).entries:
            path = entry.name if folder == "." else f"{folder}/{entry.name}"
            data = await owners_workspace().content(path, MAX_WRITE_BYTES) if entry.kind == "file" else None
            locked = "locked" if locked_parts(data or b"") else ""
            found.append({"path": path, "type": entry.kind, "size": entry.size, "locked": locked})
            waiting += [path] if entry.kind == "folder" else []
    return found


def put(
    path: Where,
    source: Annotated[str, argument("Its content (default: standard input).", "FILE", show_default=False)] = "-",
) -> None:
    """Write a file of the workspace, even one with locked text."""
    with explained(f"{source} can't be read"):
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    with_database(lambda database: _write(database, path, data))
    echo(f"wrote {path}")


def edit(path: Where) -> None:
    """Edit a file in $EDITOR. If it changes meanwhile, it isn't overwritten."""
    before = asyncio.run(owners_workspace().content(path, MAX_WRITE_BYTES))
    data = _edit_copy(Path(path).name, before or b"")
    if data == (before or b""):
        echo("nothing was changed")
        return
    with_database(lambda database: _write_over(database, path, before, data))
    echo(f"wrote {path}")


def _edit_copy(name: str, before: bytes) -> bytes:
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
        draft = Path(f"{Path(path).name}.mine")
        await asyncio.to_thread(draft.write_bytes, data)
        texts = [text.decode("utf-8", "replace") for text in (now or b"", data)]
        raise OwnerMustAct(f"{path} has changed meanwhile; your text is in {draft}\n{difference(path, *texts)}")
    await _write(database, path, data)


async def _write(database: Database, path: str, data: bytes) -> None:
    await (await labelled_workspace(database)).write(path, data, Label.OWNER, mime_of(path), unlocked=True)


SEARCH_SECONDS = 60.0
MAX_MATCHES = 500


def find_lines(
    pattern: Annotated[str, argument("The text to find, in any case.", "TEXT")],
    path: Annotated[str, argument("A file or folder (default: the workspace).", "PATH", show_default=False)] = ".",
    glob: Annotated[str | None, option("Only files like *.md.", "GLOB")] = None,
    regex: Annotated[bool, flag("TEXT is a regular expression.", "--regex")] = False,
    as_json: AsJson = False,
) -> None:
    """Find lines in text files."""
    root = str(Environment.read(os.environ).workspace)
    answer = asyncio.run(run_alone(search_files, root, path, pattern, glob, MAX_MATCHES, regex, seconds=SEARCH_SECONDS))
    found = TypeAdapter(FoundLines).validate_python(answer)
    print_rows(found.matches, ("path", "line", "text"), as_json=as_json, none="No matches.")
    if found.more:
        echo(f"supaclaw: only the first {MAX_MATCHES} lines are shown; name a folder or use --glob", error=True)


def move(path: Where, to: Annotated[str, argument("The new path.", "TO")]) -> None:
    """Move or rename a file, after a checkpoint. Never overwrites one."""

    async def work(database: Database) -> None:
        await (await labelled_workspace(database)).move(path, to, Label.OWNER, mime_of(to), unlocked=True)

    make_checkpoint("before a move")
    with_database(work)
    echo(f"moved {path} to {to}")


def delete(paths: Annotated[list[str], argument("Files, from the workspace root.", "PATH")], yes: Yes = False) -> None:
    """Delete files, after a checkpoint."""
    workspace = owners_workspace()
    for path in paths:
        workspace.size(path)
    question = f"Delete {', '.join(paths)}? A checkpoint is made first."
    confirm_unless(yes, question, "this deletes files of the workspace; add --yes to confirm")
    make_checkpoint("before a deletion")
    for path in paths:
        asyncio.run(workspace.remove(path, unlocked=True))
        echo(f"deleted {path}")


def unlock(path: Where) -> None:
    """Read a file that needs a password, which is used once."""
    password = ask_secret_line(f"Password of {path}")
    if not password:
        raise OwnerMustAct("no password was given; nothing was read")
    left = with_database(partial(_unlock, path, password))
    echo(f"your agent can read {path} now{f'; {left}' if left else ''}")


async def _unlock(path: str, password: str, database: Database) -> str:
    owner, cpu = await database.run(require_owner), Cpu()
    scratch = ScratchFolder(Environment.read(os.environ).state / "unlock")
    async with afterwards(cpu.close):
        workspace = await labelled_workspace(database)
        return await LockedFiles(database, lambda _: workspace, cpu, scratch).unlock(owner.id, path, password)


def pack(path: Folder = ".", output: Output = ".") -> None:
    """Save a folder as a zip. Never overwrites a file."""
    root, name = Environment.read(os.environ).workspace, WorkspacePath.parse(path).name or "workspace"
    with tempfile.TemporaryFile() as archive:
        archive.writelines(zipped(root, path, zip_members(root, path)))
        archive.seek(0)
        save_copy(archive, output, f"{name}.zip")

"""`supaclaw files`."""

import os
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

import typer

from gateway.cli.console import echo
from gateway.cli.database import require_owner, with_connection
from gateway.cli.output import AsJson, Limit, print_rows, save_copy
from gateway.cli.questions import confirm
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.domain.ids import FileId
from gateway.domain.principals import Label
from gateway.flow.labels import vouch as vouch_for
from gateway.store.connection.pool import Connection
from gateway.store.files import files
from gateway.store.files.files import FileRow
from gateway.store.people import principals
from gateway.workspace.files.access import explained_errors, open_file
from gateway.workspace.files.paths import WorkspacePath
from gateway.workspace.files.tree import Workspace

TRUST = {Label.OWNER: "yours", Label.KNOWN: "known", Label.UNTRUSTED: "not vouched for"}
HEAD = 3
"""Lines of a file that are shown before it is vouched for."""


@dataclass(frozen=True, slots=True)
class Listed(FileRow):
    """A file, and how far it is trusted, in words."""

    trust: str


def show(limit: Limit = 20, as_json: AsJson = False) -> None:
    """List files, newest first, and how trusted they are."""

    async def recent(conn: Connection) -> list[FileRow]:
        owner = await principals.owner(conn)
        return await files.recent(conn, owner.id, limit) if owner else []

    rows = [Listed(**asdict(row), trust=TRUST[row.label]) for row in with_connection(recent)]
    print_rows(rows, ("id", "path", "size", "trust"), as_json=as_json)


def vouch(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files, from the workspace root.")],
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Vouch for files as they are now; they then count as your own words."""
    workspace = Workspace(Environment.read(os.environ).workspace)
    found = {path: _shown(workspace, path) for path in paths}
    if not yes:
        if not sys.stdin.isatty():
            raise OwnerMustAct("look at the files; then add --yes to vouch for them")
        confirm("Do you vouch for what is in them?")

    async def store(conn: Connection) -> None:
        await vouch_for(conn, (await require_owner(conn)).id, found, Label.OWNER)

    with_connection(store)
    echo(f"vouched for {len(found)} file{'s' * (len(found) != 1)}; a new conversation (/new) trusts them")


def _shown(workspace: Workspace, path: str) -> str:
    """Print what a file is; its hash."""
    head = workspace.head(path, 2_000)
    if head is None:
        raise OwnerMustAct(f"there is no file {path} in {workspace.root}")
    changed = datetime.fromtimestamp((workspace.root / str(WorkspacePath.parse(path))).stat().st_mtime, UTC)
    echo(f"{path}: {head.size} bytes, changed {changed:%Y-%m-%d %H:%M} UTC")
    for line in head.data.decode("utf-8", "replace").splitlines()[:HEAD]:
        echo(f"    {line[:120]}")
    return head.sha256


def get(
    id: Annotated[UUID, typer.Argument(help="The id shown by `supaclaw files list`.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="PATH", help="Where to write it; - is standard output.")
    ] = ".",
) -> None:
    """Copy a file out of the workspace. Never overwrites a file."""

    async def known(conn: Connection) -> FileRow | None:
        owner = await principals.owner(conn)
        return await files.by_id(conn, owner.id, FileId(id)) if owner else None

    row = with_connection(known)
    if row is None:
        raise OwnerMustAct(f"there is no file {id}; `supaclaw files list` shows them")
    path = WorkspacePath.parse(row.path)
    with (
        explained_errors(path),
        open_file(Environment.read(os.environ).workspace, path) as found,
        open(found, "rb", closefd=False) as file,
    ):
        save_copy(file, output, path.name)

"""`supaclaw workspace`: what a new version has for files that you edited."""

import os
from typing import Annotated

import typer

from gateway.cli.console import echo
from gateway.cli.database import require_owner, with_database
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct
from gateway.domain.principals import Label
from gateway.flow.labels import ContentLabels
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.workspace.files.tree import Labels, Workspace
from gateway.workspace.locks import OwnerEdits
from gateway.workspace.template import Renewal, renewals, template_hashes
from gateway.workspace.template import merge_renewal as merge_file


def diff() -> None:
    """Show what merging would change in files that you edited."""
    _, found = _edited()
    for path, renewal in found.items():
        how = (
            f"supaclaw workspace merge {path}" if renewal.merged is not None else "edit it by hand: same lines changed"
        )
        echo(f"# {path}: {how}\n{renewal.diff()}")
    if not found:
        echo("nothing to merge: every file is up to date")


def merge(file: Annotated[str, typer.Argument(metavar="FILE", help="Such as AGENTS.md.")]) -> None:
    """Merge this version's changes into a file that you edited."""
    _, found = _edited()
    if file not in found:
        raise OwnerMustAct(f"there is nothing to merge into {file}; `supaclaw workspace diff` lists what is pending")

    async def merge_labelled(database: Database) -> None:
        """As far as the text was trusted before, it is after."""
        async with database.connection() as conn:
            owner = await principals.owner(conn)
        labels = ContentLabels(database, owner.id, Label.OWNER, template_hashes()) if owner else None
        await merge_file(owners_workspace(labels), found[file])

    with_database(merge_labelled)
    echo(f"{file} is merged")


def owners_workspace(labels: Labels | None = None) -> Workspace:
    """The workspace as its owner edits it, also while the agent works: the gateway is told whose edits these are."""
    environment = Environment.read(os.environ)
    workspace = Workspace(environment.workspace, labels)
    workspace.before_edit = OwnerEdits(environment.data).note
    return workspace


async def labelled_workspace(database: Database) -> Workspace:
    """The same; what is written or moved there is the owner's from the first byte on."""
    async with database.connection() as conn:
        owner = await require_owner(conn)
    return owners_workspace(ContentLabels(database, owner.id, Label.OWNER, template_hashes()))


def _edited() -> tuple[Workspace, dict[str, Renewal]]:
    workspace = Workspace(Environment.read(os.environ).workspace)
    return workspace, {renewal.path: renewal for renewal in renewals(workspace) if renewal.edited}

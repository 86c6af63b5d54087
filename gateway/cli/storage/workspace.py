"""`supaclaw workspace` and `supaclaw checkpoints`: merge a new version's changes, and restore earlier states."""

import asyncio
import os
from dataclasses import asdict
from functools import partial
from typing import Annotated

import typer

from gateway.background.cpu.executor import run_alone
from gateway.cli.connections.database import require_owner, with_connection, with_database
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import (
    AsJson,
    Limit,
    Yes,
    argument,
    confirm_unless,
    option,
    print_result,
    print_rows,
)
from gateway.config.environment import Environment
from gateway.config.machine import SystemClock
from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.domain.ids import MessageId
from gateway.flow.files.checkpoints import Checkpoints, Created
from gateway.flow.labels import owner_labels
from gateway.store.connection.pool import Database
from gateway.store.people import principals
from gateway.store.transcript import messages
from gateway.workspace.files.tree import Labels, Workspace
from gateway.workspace.locks import OwnerEdits
from gateway.workspace.template import Renewal, renewals
from gateway.workspace.template import merge_renewal as merge_file


def show_renewals() -> None:
    """Show what merging would change in files that you edited."""
    pending = _edited_files()
    for path, renewal in pending.items():
        how = (
            f"supaclaw workspace merge {path}" if renewal.merged is not None else "edit it by hand: same lines changed"
        )
        echo(f"# {path}: {how}\n{renewal.diff()}")
    if not pending:
        echo("nothing to merge: every file is up to date")


def merge(file: Annotated[str, argument("Such as AGENTS.md.", "FILE")]) -> None:
    """Merge this version's changes into a file that you edited."""
    pending = _edited_files()
    if file not in pending:
        raise OwnerMustAct(f"there is nothing to merge into {file}; `supaclaw workspace diff` lists pending changes")

    async def merge_labelled(database: Database) -> None:
        """Merge, keeping the label of the text."""
        owner = await database.read(principals.owner)
        await merge_file(owners_workspace(owner_labels(database, owner.id) if owner else None), pending[file])

    with_database(merge_labelled)
    echo(f"{file} is merged")


def owners_workspace(labels: Labels | None = None) -> Workspace:
    """The workspace for edits by its owner, of which the gateway is told, so that they can be made while it runs."""
    environment = Environment.read(os.environ)
    workspace = Workspace(environment.workspace, labels)
    workspace.before_edit = OwnerEdits(environment.data).note
    return workspace


async def labelled_workspace(database: Database) -> Workspace:
    """The same, where all that is written or moved gets the label owner."""
    return owners_workspace(owner_labels(database, (await database.run(require_owner)).id))


def _edited_files() -> dict[str, Renewal]:
    """The changes of this version to files that the owner edited, by path."""
    workspace = Workspace(Environment.read(os.environ).workspace)
    return {renewal.path: renewal for renewal in renewals(workspace) if renewal.edited}


CHECKPOINT_SECONDS = 600.0

Id = Annotated[str, argument("The checkpoint's id, or its beginning.", "ID")]


def list_checkpoints(limit: Limit = 20, as_json: AsJson = False) -> None:
    """List checkpoints of the workspace, newest first."""
    rows = asyncio.run(_checkpoints().listing(limit))
    print_rows(rows, ("id", "made_at", "reason", "changes", "last_message"), as_json=as_json)


def diff_checkpoint(
    id: Id,
    other: Annotated[str | None, argument("Another checkpoint (default: the workspace now).", "ID2")] = None,
    as_json: AsJson = False,
) -> None:
    """List what changed since a checkpoint. The other side is ID2, or the current workspace."""
    print_rows(asyncio.run(_checkpoints().diff(id, other)), ("change", "path"), as_json=as_json, none="No changes.")


def create_checkpoint(as_json: AsJson = False) -> None:
    """Make a checkpoint now."""
    made = make_checkpoint("asked")
    done = f"made {made.id}: {made.changes}" if made.id else "nothing has changed since the last checkpoint"
    left_out = f" (left out: {made.left_out})" if made.left_out else ""
    print_result(asdict(made), f"{done}{left_out}", as_json=as_json)


def restore_checkpoint(
    id: Id,
    path: Annotated[str | None, option("Only this file or folder.", "PATH")] = None,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Restore the workspace to a checkpoint. The current state is saved as a checkpoint first."""
    question = f"Restore {path or 'all files'} from {id}? The current state is saved as a checkpoint first."
    confirm_unless(yes, question, "this changes files of the workspace; add --yes to confirm")
    done = with_database(lambda database: _checkpoints().restore(database, SystemClock(), id, path))
    kept = f"; the previous state is {done.before}" if done.before else ""
    print_result(asdict(done), f"restored {id}: {done.written} written, {done.removed} removed{kept}", as_json=as_json)
    for left in done.left:
        echo(f"supaclaw: {left} was not restored: its current content is in no checkpoint", error=True)
    if done.left:
        raise typer.Exit(1)


def make_checkpoint(reason: str) -> Created:
    """Make a checkpoint, if anything has changed since the last one; raises `SupaclawError`."""
    return asyncio.run(_checkpoints().create(reason, _last_message()))


def _checkpoints() -> Checkpoints:
    environment = Environment.read(os.environ)
    return Checkpoints(environment.workspace, environment.data, partial(run_alone, seconds=CHECKPOINT_SECONDS))


def _last_message() -> MessageId | None:
    """The newest message; None without the database, which a checkpoint of files does not need."""
    try:
        return with_connection(messages.last_id)
    except SupaclawError as exc:
        echo(f"supaclaw: without the database the checkpoint names no message: {exc}", error=True)
        return None

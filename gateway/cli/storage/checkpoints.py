"""`supaclaw checkpoints`: earlier versions of the workspace."""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated

import typer
from pydantic import TypeAdapter

from gateway.background.cpu import run_alone
from gateway.cli.console import echo
from gateway.cli.database import with_connection, with_database
from gateway.cli.output import AsJson, Limit, print_json, print_rows
from gateway.cli.questions import confirm
from gateway.config.clock import SystemClock
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct, SupaclawError
from gateway.domain.ids import MessageId
from gateway.domain.json import Json
from gateway.flow.vouching import expect_older, list_older
from gateway.store.people import principals
from gateway.store.pool import Database
from gateway.store.transcript import messages
from gateway.workspace.checkpoints import jobs
from gateway.workspace.locks.keeper import note_all

SECONDS = 600.0

Id = Annotated[str, typer.Argument(metavar="ID", help="The checkpoint's id, or its beginning.")]


@dataclass(frozen=True, slots=True)
class Row:
    """A checkpoint."""

    id: str
    made_at: datetime
    reason: str
    changes: str
    last_message: int | None


@dataclass(frozen=True, slots=True)
class Difference:
    """One changed path."""

    change: str
    path: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What `restore` did; `before` is the checkpoint of the state it replaced."""

    before: str | None
    written: int
    removed: int
    left: list[str]


def show(limit: Limit = 20, as_json: AsJson = False) -> None:
    """List checkpoints of the workspace, newest first."""
    rows = TypeAdapter(list[Row]).validate_python(_run_job(jobs.listing, _paths()[1], limit))
    print_rows(rows, ("id", "made_at", "reason", "changes", "last_message"), as_json=as_json)


def diff(
    id: Id,
    other: Annotated[str | None, typer.Argument(metavar="[ID2]", help="Default: the current workspace.")] = None,
    as_json: AsJson = False,
) -> None:
    """List what changed since a checkpoint. The other side is ID2, or the current workspace."""
    rows = TypeAdapter(list[Difference]).validate_python(_run_job(jobs.diff, *_paths(), id, other))
    print_rows(rows, ("change", "path"), as_json=as_json, none="No changes.")


def create(as_json: AsJson = False) -> None:
    """Make a checkpoint now."""
    result = _run_job(jobs.commit, *_paths(), _last_message(), "asked")
    made = TypeAdapter(dict[str, str | None]).validate_python(result)
    done = f"made {made['id']}: {made['changes']}" if made["id"] else "nothing has changed since the last checkpoint"
    left_out = f" (left out: {made['left_out']})" if made["left_out"] else ""
    print_json(result) if as_json else echo(f"{done}{left_out}")


def restore(
    id: Id,
    path: Annotated[str | None, typer.Option(metavar="PATH", help="Only this file or folder.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Restore the workspace to a checkpoint. The current state is saved as a checkpoint first."""
    if not yes:
        if not _at_a_terminal():
            raise OwnerMustAct("this changes files of the workspace; add --yes to confirm")
        question = f"Restore {path or 'all files'} from {id}? The current state is saved as a checkpoint first."
        confirm(question)
    result = with_database(partial(_restored, id, path))
    done = TypeAdapter(Restored).validate_python(result)
    kept = f"; the previous state is {done.before}" if done.before else ""
    print_json(result) if as_json else echo(f"restored {id}: {done.written} written, {done.removed} removed{kept}")
    for left in done.left:
        echo(f"supaclaw: {left} was not restored: its current content is in no checkpoint", error=True)
    if done.left:
        raise typer.Exit(1)


async def _restored(id: str, path: str | None, database: Database) -> Json:
    """What comes back and has no label is nobody's until somebody vouches for it; what is there now is the owner's."""
    root = Environment.read(os.environ).workspace
    async with database.connection() as conn:
        owner, last = await principals.owner(conn), await messages.last_id(conn)
    if owner is not None:
        await expect_older(database, owner.id, root)
    result = await run_alone(jobs.restore, *_paths(), id, path, last, seconds=SECONDS)
    note_all(root, Environment.read(os.environ).data)
    await list_older(database, lambda _: root, SystemClock())
    return result


def _at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _paths() -> tuple[str, str]:
    environment = Environment.read(os.environ)
    return str(environment.workspace), str(environment.data / "checkpoints")


def _last_message() -> MessageId | None:
    """None without the database: saving files does not need it."""
    try:
        return with_connection(messages.last_id)
    except SupaclawError as exc:
        echo(f"supaclaw: without the database the checkpoint names no message: {exc}", error=True)
        return None


def _run_job(job: Callable[..., Json], *arguments: Json) -> Json:
    return asyncio.run(run_alone(job, *arguments, seconds=SECONDS))

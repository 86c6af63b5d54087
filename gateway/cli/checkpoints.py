"""`supaclaw checkpoints`: the workspace as it was."""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

import typer
from pydantic import TypeAdapter

from gateway.background.cpu import Cpu
from gateway.cli.database import with_database
from gateway.cli.output import AsJson, print_json, print_rows
from gateway.config.environment import Environment
from gateway.domain.errors import OwnerMustAct, SupaclawError, TryAgainLater
from gateway.domain.ids import MessageId
from gateway.domain.json import Json
from gateway.store import messages
from gateway.store.pool import Database
from gateway.workspace.checkpoints import jobs as checkpoints

SECONDS = 600.0
SHORT = 10

Id = Annotated[str, typer.Argument(metavar="ID", help="The beginning of its id is enough.")]


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
    """A path that differs."""

    change: str
    path: str


@dataclass(frozen=True, slots=True)
class Made:
    """What a commit did."""

    id: str | None
    added: int
    changed: int
    removed: int
    files: int
    skipped: dict[str, int]


@dataclass(frozen=True, slots=True)
class Left:
    """A path that could not be restored."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore did."""

    restored: str
    before: Made
    written: int
    removed: int
    left: list[Left]


def show(
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = 20, as_json: AsJson = False
) -> None:
    """List checkpoints of the workspace, the latest first."""
    _, store = _places()
    rows = TypeAdapter(list[Row]).validate_python(_done(checkpoints.listing, store, limit))
    print_rows(
        rows if as_json else [replace(row, id=row.id[:SHORT]) for row in rows],
        ("id", "made_at", "reason", "changes", "last_message"),
        as_json=as_json,
    )


def diff(
    id: Id,
    other: Annotated[
        str | None, typer.Argument(metavar="[ID2]", help="Without it: the workspace as it is now.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what differs from a checkpoint. The other side is ID2, or the workspace as it is now."""
    told = _done(checkpoints.diff, *_places(), id, other)
    print_rows(TypeAdapter(list[Difference]).validate_python(told), ("change", "path"), as_json=as_json)


def create(as_json: AsJson = False) -> None:
    """Make a checkpoint now."""
    made = TypeAdapter(Made).validate_python(_done(checkpoints.commit, *_places(), _last_message(), "asked"))
    if as_json:
        print_json(TypeAdapter(Made).dump_python(made))
    else:
        print(_told(made))


def restore(
    id: Id,
    path: Annotated[str | None, typer.Option(metavar="PATH", help="Only this file or folder.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make the workspace what it was. What it is now becomes a checkpoint first."""
    if not yes:
        _ask(id, path)
    told = _done(checkpoints.restore, *_places(), id, path, _last_message())
    done = TypeAdapter(Restored).validate_python(told)
    if as_json:
        print_json(TypeAdapter(Restored).dump_python(done))
    else:
        print(_told(done.before))
        print(f"restored {done.restored[:SHORT]}: {done.written} written, {done.removed} removed")
    for left in done.left:
        print(f"supaclaw: {left.path} is left as it is: {left.reason}", file=sys.stderr)
    if done.left:
        raise typer.Exit(1)


def _ask(id: str, path: str | None) -> None:
    if not _at_a_terminal():
        raise OwnerMustAct("this changes files of the workspace; say --yes")
    what = path or "all files of the workspace"
    if not typer.confirm(f"Make {what} what {id} holds? What is there now becomes a checkpoint first."):
        raise typer.Exit(1)


def _at_a_terminal() -> bool:
    return sys.stdin.isatty()


def _places() -> tuple[str, str]:
    environment = Environment.read(os.environ)
    return str(environment.workspace), str(environment.data / "checkpoints")


def _last_message() -> MessageId | None:
    """Files can be kept and restored without the database, too."""

    async def read(database: Database) -> MessageId | None:
        async with database.connection() as connection:
            return await messages.last_id(connection)

    try:
        return with_database(read)
    except SupaclawError as exc:
        print(f"supaclaw: without the database the checkpoint names no message: {exc}", file=sys.stderr)
        return None


def _done(job: Callable[..., Json], *arguments: Json) -> Json:
    """What the job says; a lock that another program holds is waited for."""

    async def run(wait: float) -> Json:
        cpu = Cpu()
        try:
            return await cpu.run(job, *arguments, wait, seconds=SECONDS)
        finally:
            await cpu.close()

    try:
        return asyncio.run(run(0))
    except TryAgainLater:
        print("another program is at work on the checkpoints; waiting for it, 30 seconds at most", file=sys.stderr)
        return asyncio.run(run(checkpoints.WAIT_SECONDS))


def _told(made: Made) -> str:
    skipped = ", ".join(f"{count} {reason}" for reason, count in made.skipped.items())
    left_out = f" (left out: {skipped})" if skipped else ""
    if made.id is None:
        return f"nothing has changed since the last checkpoint{left_out}"
    return f"made {made.id[:SHORT]}: {made.added} added, {made.changed} changed, {made.removed} removed{left_out}"

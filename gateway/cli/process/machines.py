"""`supaclaw machines`: the gateways and workers on one database."""

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Self

import typer

from gateway.cli.connections.database import with_database
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import AsJson, print_rows
from gateway.domain.errors import OwnerMustAct
from gateway.store.connection.pool import Database
from gateway.store.work import instances
from gateway.store.work.instances import Instance

COLUMNS = ("name", "kind", "state", "seen_at", "channels", "files", "tasks")
Name = Annotated[str, typer.Argument(metavar="NAME", help="As `supaclaw machines` shows it.")]


@dataclass(frozen=True, slots=True)
class MachineLine:
    """One process: the channels it holds, what only its files have, how many tasks it runs."""

    name: str
    kind: str
    state: str
    seen_at: datetime
    channels: tuple[str, ...]
    files: tuple[str, ...]
    tasks: int

    @classmethod
    def of(cls, it: Instance) -> Self:
        """As it is shown."""
        return cls(it.name, it.kind, it.state, it.seen_at, it.channels, it.homes, it.running)


def show(as_json: AsJson = False) -> None:
    """List the gateways and workers on the database, with what each holds."""
    print_rows([MachineLine.of(each) for each in with_database(_every)], COLUMNS, as_json=as_json, none="No machines.")


def forget(name: Name) -> None:
    """Give up a machine that is gone for good.

    Another one may then connect its channels anew.
    """
    if not with_database(lambda database: database.run(lambda tx: instances.forget(tx, name))):
        raise OwnerMustAct(f"no machine {name} is stopped or dead; `supaclaw machines` lists them")
    echo(f"Forgotten: {name}.")


async def _every(database: Database) -> list[Instance]:
    async with database.connection() as conn:
        return await instances.every(conn)

"""`supaclaw machines`: the gateways and workers on one database."""

from typing import Annotated

import typer

from gateway.cli.connections.database import with_connection
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import AsJson, print_rows
from gateway.domain.errors import OwnerMustAct
from gateway.store.work import instances

COLUMNS = ("name", "kind", "state", "seen_at", "channels", "files", "tasks")
Name = Annotated[str, typer.Argument(metavar="NAME", help="A name in the list of `supaclaw machines`.")]


def show(as_json: AsJson = False) -> None:
    """List gateways and workers, with their channels and tasks."""
    rows = [
        {name: getattr(each, name) for name in ("name", "kind", "state", "seen_at", "channels")}
        | {"files": each.homes, "tasks": each.running}
        for each in with_connection(instances.every)
    ]
    print_rows(rows, COLUMNS, as_json=as_json, none="No machines.")


def forget(name: Name) -> None:
    """Forget a machine that no longer runs.

    Another one can then connect its channels.
    """
    if not with_connection(lambda tx: instances.forget(tx, name)):
        raise OwnerMustAct(f"no machine {name} is stopped or dead; `supaclaw machines` lists them")
    echo(f"Forgotten: {name}.")

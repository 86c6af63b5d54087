"""`supaclaw pairing`: access requests, and the owner's decisions."""

from typing import Annotated

import typer

from gateway.cli.console import echo
from gateway.cli.database import with_database
from gateway.cli.output import AsJson, print_rows
from gateway.flow.people import Pairing
from gateway.store.connection.pool import Database
from gateway.store.people.pairings import PairingRow

COLUMNS = ("id", "state", "name", "channel", "sender", "code", "asked_at", "expires_at")


def show(as_json: AsJson = False) -> None:
    """List open access requests and the people who have access."""

    async def read(database: Database) -> list[PairingRow]:
        pairing = Pairing(database)
        return [*await pairing.open_requests(), *await pairing.admitted()]

    print_rows(with_database(read), COLUMNS, as_json=as_json, none="No access requests.")


def approve(code: Annotated[str, typer.Argument(help="The code that the stranger received.")]) -> None:
    """Approve an access request."""
    row = with_database(lambda database: Pairing(database).approve(code))
    echo(f"{row} has access")


def deny(which: Annotated[str, typer.Argument(metavar="CODE|ID", help="The code, or the number in the list.")]) -> None:
    """Deny a request, or revoke access."""
    row = with_database(lambda database: Pairing(database).deny(which))
    echo(f"{row} has no access")

"""`supaclaw owner`: whom the gateway belongs to."""

import os
from typing import Annotated

import typer

from gateway.cli.console import echo
from gateway.cli.database import with_connection, with_database
from gateway.cli.output import AsJson, print_rows
from gateway.config.channels import check_owner, enabled_channels
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.people.access import owner_problems
from gateway.flow.people import Pairing
from gateway.store.people import accounts, principals
from gateway.store.people.principals import PrincipalRow


def show(as_json: AsJson = False) -> None:
    """Show the owner and the owner's ids."""
    owner = with_connection(principals.owner)
    print_rows(
        [owner] if owner else [],
        ("name", "identities"),
        as_json=as_json,
        none="No owner yet; the first start creates one.",
    )
    if owner:
        _print_unsettled(owner)


def set(
    channel: Annotated[str, typer.Argument(help="The messenger, such as telegram.")],
    id: Annotated[str, typer.Argument(help="Your own id there.")],
) -> None:
    """Set the owner's id on a messenger. It replaces the previous one at once."""
    check_owner({channel: id})
    owner, former = with_connection(lambda connection: accounts.set_owner(connection, channel, id))
    echo(f"the owner on {channel} is {id}" + (f", no longer {', '.join(former)}" if former else ""))
    _print_unsettled(owner)


def part(
    account: Annotated[str, typer.Argument(help="As `supaclaw owner show` prints it, such as telegram:987654321.")],
) -> None:
    """Unlink an account that was linked with /link. Its chats leave your conversations at once."""
    with_database(lambda database: Pairing(database).part(account))
    echo(f"{account} is unlinked")


def _print_unsettled(owner: PrincipalRow) -> None:
    config = load_early(Environment.read(os.environ), os.environ)
    for line in owner_problems(
        config.owner.ids, enabled_channels(config.channels), owner.identities, owner.unconfirmed
    ):
        echo(f"supaclaw: {line}", error=True)

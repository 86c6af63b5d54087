"""`supaclaw owner` and `supaclaw pairing`: the owner's accounts, and access requests."""

import os
from typing import Annotated

from gateway.app.storage.erase import erase_person
from gateway.cli.connections.database import run_quietly, with_connection, with_database
from gateway.cli.terminal.console import echo
from gateway.cli.terminal.output import AsJson, Yes, argument, confirm_unless, print_rows
from gateway.config.channels import check_owner, enabled_channels
from gateway.config.environment import Environment
from gateway.config.load import load_early
from gateway.domain.people.access import owner_problems
from gateway.flow.people import Pairing
from gateway.store.connection.pool import Database
from gateway.store.people import accounts, principals
from gateway.store.people.pairings import PairingRow
from gateway.store.people.principals import PrincipalRow


def show_owner(as_json: AsJson = False) -> None:
    """Show the owner and the owner's ids."""
    owner = with_connection(principals.owner)
    none = "No owner yet; the first start creates one."
    print_rows([owner] if owner else [], ("name", "identities"), as_json=as_json, none=none)
    if owner:
        _print_unsettled(owner)


def set_owner(
    channel: Annotated[str, argument("The messenger, such as telegram.", "CHANNEL")],
    id: Annotated[str, argument("Your user id on it.", "ID")],
) -> None:
    """Set the owner's id on a messenger. It replaces the previous one at once."""
    check_owner({channel: id})
    owner, former = with_connection(lambda connection: accounts.set_owner(connection, channel, id))
    echo(f"the owner on {channel} is {id}" + (f", no longer {', '.join(former)}" if former else ""))
    _print_unsettled(owner)


def unlink_account(
    account: Annotated[str, argument("As `supaclaw owner show` prints it, such as telegram:98765.", "ACCOUNT")],
) -> None:
    """Unlink an account that was linked with /link. Its chats leave your conversations at once."""
    with_database(lambda database: Pairing(database).part(account))
    echo(f"{account} is unlinked")


def _print_unsettled(owner: PrincipalRow) -> None:
    config = load_early(Environment.read(os.environ), os.environ)
    channels = enabled_channels(config.channels)
    for line in owner_problems(config.owner.ids, channels, owner.identities, owner.unconfirmed):
        echo(f"supaclaw: {line}", error=True)


COLUMNS = ("id", "state", "name", "channel", "sender", "code", "asked_at", "expires_at")


def list_requests(as_json: AsJson = False) -> None:
    """List open access requests and the people who have access."""

    async def read(database: Database) -> list[PairingRow]:
        pairing = Pairing(database)
        return [*await pairing.open_requests(), *await pairing.admitted()]

    print_rows(with_database(read), COLUMNS, as_json=as_json, none="No access requests.")


def approve_request(code: Annotated[str, argument("The code that the person received.", "CODE")]) -> None:
    """Approve an access request."""
    row = with_database(lambda database: Pairing(database).approve(code))
    echo(f"{row} has access")


def erase_member(
    account: Annotated[str, argument("One of the member's accounts, such as telegram:98765.", "ACCOUNT")],
    yes: Yes = False,
) -> None:
    """Permanently erase all that is a member's. The gateway must be stopped; the member gets a receipt."""
    environment = Environment.read(os.environ)

    def agree(name: str) -> None:
        refusal = "this permanently erases conversations, memories and files; add --yes to confirm"
        confirm_unless(yes, f"Erase all that is {name}'s permanently? It can't be restored.", refusal)

    echo(run_quietly(erase_person(environment, load_early(environment, os.environ), account, agree)))


def deny_request(which: Annotated[str, argument("The code, or the number in the list.", "CODE|ID")]) -> None:
    """Deny a request, or revoke access."""
    row = with_database(lambda database: Pairing(database).deny(which))
    echo(f"{row} has no access")

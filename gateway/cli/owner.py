"""`supaclaw owner`: whom the gateway belongs to."""

from dataclasses import replace
from typing import Annotated

import typer

from gateway.cli.database import with_connection, with_database
from gateway.cli.output import AsJson, print_rows
from gateway.config.channels import channel_names, known_channel
from gateway.domain.principals import Role
from gateway.flow.inbound.pairing import Pairing
from gateway.store.people import principals
from gateway.store.pool import Connection


def show(as_json: AsJson = False) -> None:
    """Show the owner and the owner's ids."""
    owner = with_connection(principals.owner)
    print_rows([owner] if owner else [], ("name", "identities"), as_json=as_json)


def set(
    channel: Annotated[str, typer.Argument(help="The messenger, such as telegram.")],
    id: Annotated[str, typer.Argument(help="Your own id there, as the messenger knows it.")],
) -> None:
    """Say which id on a messenger is the owner's. It takes the place of the one before."""
    identity = f"{known_channel(channel, channel_names())}:{id}"
    with_connection(lambda connection: _set(connection, channel, identity))
    print(f"the owner on {channel} is now {id}; restart a running gateway")


def part(
    account: Annotated[str, typer.Argument(help="As `supaclaw owner show` prints it, such as telegram:987654321.")],
) -> None:
    """Part an account that was joined with /link. Its chats leave your conversations at once."""
    with_database(lambda database: Pairing(database).part(account))
    print(f"{account} is parted")


async def _set(connection: Connection, channel: str, identity: str) -> None:
    if await principals.owner(connection) is None:
        await principals.add(connection, Role.OWNER, "Owner", [identity])
        return
    owner = await principals.lock_owner(connection)
    others = [known for known in owner.identities if not known.startswith(f"{channel}:")]
    await principals.update(connection, replace(owner, identities=(*others, identity)))

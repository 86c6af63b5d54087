"""`supaclaw token`."""

from typing import Annotated

import typer

from gateway.cli.database import the_owner, with_database
from gateway.cli.output import AsJson, print_rows
from gateway.domain.errors import OwnerMustAct
from gateway.domain.scopes import Scope
from gateway.store.people import tokens
from gateway.store.pool import Database

Scopes = list[Scope]
COLUMNS = ("name", "scopes", "source", "created_at", "last_used_at")
Name = Annotated[str, typer.Argument(help="What the token is for; any name.")]


def create(
    name: Name,
    scope: Annotated[
        Scopes, typer.Option(metavar="SCOPE", help=f"What it may do: {', '.join(Scope)}; one option each.")
    ],
) -> None:
    """Make a token and print it. It is not kept and cannot be shown again."""

    print(with_database(lambda database: made(database, name, scope)))


async def made(database: Database, name: str, scopes: Scopes, source: str | None = None) -> str:
    """A new token of the owner's; with a source it is bound to that."""
    async with database.connection() as connection:
        mine = (await the_owner(connection)).id
    _, plain = await tokens.create(database, mine, name, scopes, source=source)
    return plain


def show(as_json: AsJson = False) -> None:
    """List tokens, without the tokens themselves."""
    print_rows(with_database(tokens.list_all), COLUMNS, as_json=as_json)


def revoke(name: Name) -> None:
    """Make a token useless, at once."""

    async def write(database: Database) -> bool:
        return await tokens.revoke(database, name)

    if not with_database(write):
        raise OwnerMustAct(f"there is no token named {name}; `supaclaw token list` shows them")
    print(f"{name} is revoked")

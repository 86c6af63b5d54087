"""`supaclaw token`."""

from typing import Annotated

import typer

from gateway.cli.console import echo
from gateway.cli.database import require_owner, with_database
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
    scope: Annotated[Scopes, typer.Option(metavar="SCOPE", help=f"What it may do: {', '.join(Scope)}; repeatable.")],
) -> None:
    """Create a token and print it. It is not stored and cannot be shown again."""
    echo(with_database(lambda database: create_token(database, name, scope)))


async def create_token(database: Database, name: str, scopes: Scopes, source: str | None = None) -> str:
    """Create a token for the owner, limited to `source` if given."""
    async with database.connection() as connection:
        owner = (await require_owner(connection)).id
    _, plain = await tokens.create(database, owner, name, scopes, source=source)
    return plain


def show(as_json: AsJson = False) -> None:
    """List tokens, without their secrets."""
    print_rows(with_database(tokens.list_all), COLUMNS, as_json=as_json)


def revoke(name: Name) -> None:
    """Revoke a token. It stops working at once."""
    if not with_database(lambda database: tokens.revoke(database, name)):
        raise OwnerMustAct(f"there is no token named {name}; `supaclaw token list` shows them")
    echo(f"{name} is revoked")

"""`supaclaw grants`: what the owner has allowed in advance."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import typer

from gateway.agent.work import approvals as rules
from gateway.cli.console import echo
from gateway.cli.database import require_owner, with_connection
from gateway.cli.output import AsJson, print_rows
from gateway.store.connection.pool import Connection
from gateway.store.trust import grants
from gateway.store.trust.grants import GrantRow

COLUMNS = ("name", "tool", "times_left", "expires_at", "allows")


@dataclass(frozen=True, slots=True)
class Row:
    """One grant."""

    name: str
    tool: str
    times_left: int
    expires_at: datetime
    allows: str
    arguments: object


def show_all(as_json: AsJson = False) -> None:
    """List your grants."""

    async def read(conn: Connection) -> list[GrantRow]:
        return await grants.live(conn, (await require_owner(conn)).id, datetime.now(UTC))

    rows = [
        Row(row.name, row.tool, row.times_left, row.expires_at, rules.grant_line(row), row.arguments)
        for row in with_connection(read)
    ]
    print_rows(rows, COLUMNS, as_json=as_json, none=rules.NO_GRANTS)


def give(
    number: Annotated[str, typer.Argument(metavar="NUMBER", help="Such as A17.")],
    terms: Annotated[list[str], typer.Argument(metavar="TERMS", help="Such as: 5 24h amount<=50 total 200.")],
) -> None:
    """Allow a request's call in advance, with a count and a time."""

    async def store(conn: Connection) -> GrantRow:
        owner, now = await require_owner(conn), datetime.now(UTC)
        return await rules.give_grant(conn, owner.id, number, rules.parse_terms(" ".join(terms), now), by="terminal")

    echo(f"Allowed. {rules.grant_line(with_connection(store))}")


def revoke(number: Annotated[str, typer.Argument(metavar="NUMBER", help="Such as G3.")]) -> None:
    """Revoke a grant."""

    async def end(conn: Connection) -> GrantRow:
        owner = await require_owner(conn)
        return await rules.revoke_grant(conn, owner.id, number, datetime.now(UTC), by="terminal")

    echo(f"{with_connection(end).name} is revoked.")

"""`supaclaw sessions`."""

from typing import Annotated

import typer

from gateway.cli.database import with_database
from gateway.cli.output import AsJson, print_rows
from gateway.store import sessions as store
from gateway.store.pool import Database


def sessions(
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="How many.")] = 20, as_json: AsJson = False
) -> None:
    """List conversations, newest first. `supaclaw logs ID` shows the log of one."""

    async def recent(database: Database) -> list[store.SessionSummary]:
        async with database.connection() as connection:
            return await store.recent(connection, limit)

    print_rows(with_database(recent), ("id", "channel", "chat", "messages", "started_at", "last_at"), as_json=as_json)

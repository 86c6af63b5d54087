"""`supaclaw sessions`."""

from gateway.cli.database import with_connection
from gateway.cli.output import AsJson, Limit, print_rows
from gateway.store import sessions as store


def sessions(limit: Limit = 20, as_json: AsJson = False) -> None:
    """List conversations, newest first. `supaclaw logs ID` shows the log of one."""
    rows = with_connection(lambda connection: store.recent(connection, limit))
    print_rows(
        rows,
        ("id", "channel", "chat", "messages", "started_at", "last_at"),
        as_json=as_json,
        none="No conversations yet.",
    )

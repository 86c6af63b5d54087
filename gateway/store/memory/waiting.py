"""What there is for the job `embed` to do, by one cheap look."""

from dataclasses import dataclass

from gateway.domain.ids import MessageId
from gateway.store.connection.pool import Connection


@dataclass(frozen=True, slots=True)
class Waiting:
    """The newest message of all, and whether rows wait to be counted, or for their vectors."""

    newest: MessageId | None
    uncounted: bool
    unembedded: bool


async def waiting(conn: Connection) -> Waiting:
    """A few entries of indexes, however much there is."""
    row = await conn.fetchrow(
        """select (select max(id) from messages) as newest,
                  exists (select from memories where not counted) or exists (select from memory_gone) as uncounted,
                  exists (select from memory_unembedded) as unembedded"""
    )
    assert row is not None, "it has no condition"
    return Waiting(**row)

"""The thinking of models, which no prompt, memory or journal has."""

from datetime import datetime

from gateway.domain.conversation.model import Thought
from gateway.domain.ids import MessageId, PrincipalId
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import row_count


async def of(conn: Connection, principal: PrincipalId, message: MessageId) -> Thought | None:
    """That of one message of this principal."""
    sql = "select text, ms from thoughts where message_id = $1 and principal_id = $2"
    row = await conn.fetchrow(sql, message, principal)
    return Thought(row["text"], row["ms"]) if row else None


async def clear(tx: Connection, before: datetime, limit: int) -> int:
    """Delete those from before then; returns how many."""
    sql = "delete from thoughts where message_id in (select message_id from thoughts where created_at < $1 limit $2)"
    return row_count(await tx.execute(sql, before, limit))

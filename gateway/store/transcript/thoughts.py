"""The thinking of models, which no prompt, memory or journal has, and fields that only their provider understands."""

from datetime import datetime

from gateway.domain.conversation.model import Reply, Thought
from gateway.domain.ids import MessageId, PrincipalId
from gateway.domain.text.texts import storable
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import row_count


async def keep(conn: Connection, message: MessageId, reply: Reply) -> None:
    """Store that of a reply, if it has any, with this message; it is trusted as that is."""
    if (thought := reply.thought) is not None:
        sql = """insert into thoughts (message_id, principal_id, label, text, tokens, ms)
                 select id, principal_id, label, $2, $3, $4 from messages where id = $1"""
        tokens = reply.usage.thinking_tokens
        await conn.execute(sql, message, storable(thought.text), tokens, thought.milliseconds)


async def keep_fields(conn: Connection, message: MessageId, reply: Reply) -> None:
    """Store the provider's own fields, if the reply has any, with the answer or the first call; trusted as that is."""
    if (fields := reply.fields) is not None:
        sql = """insert into provider_fields (message_id, principal_id, label, source, message, calls)
                 select id, principal_id, label, $2, $3, $4 from messages where id = $1"""
        await conn.execute(sql, message, fields.source, fields.message, fields.calls)


async def of(conn: Connection, principal: PrincipalId, message: MessageId) -> Thought | None:
    """That of one message of this principal."""
    sql = "select text, ms from thoughts where message_id = $1 and principal_id = $2"
    row = await conn.fetchrow(sql, message, principal)
    return Thought(row["text"], row["ms"]) if row else None


async def clear(tx: Connection, before: datetime, limit: int) -> int:
    """Delete those from before then; returns how many."""
    sql = "delete from thoughts where message_id in (select message_id from thoughts where created_at < $1 limit $2)"
    return row_count(await tx.execute(sql, before, limit))

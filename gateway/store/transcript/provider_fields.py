"""Fields of replies that only their provider understands, each with the answer, or with the first call of its reply."""

from gateway.domain.conversation.model import Reply
from gateway.domain.ids import MessageId
from gateway.store.connection.pool import Connection


async def keep(conn: Connection, message: MessageId, reply: Reply) -> None:
    """Store those of a reply, if it has any, with this message; they are trusted as that is."""
    if (fields := reply.fields) is not None:
        sql = """insert into provider_fields (message_id, principal_id, label, source, message, calls)
                 select id, principal_id, label, $2, $3, $4 from messages where id = $1"""
        await conn.execute(sql, message, fields.source, fields.message, fields.calls)

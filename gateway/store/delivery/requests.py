"""What callers of the APIs sent before: found again by their own keys and by what was answered to them."""

from gateway.domain.conversation.inbound import Address
from gateway.domain.ids import InboxId
from gateway.store.connection.pool import Connection
from gateway.store.delivery.inbox import InboxRow


async def address_of(conn: Connection, account: str, key: str) -> Address | None:
    """The API conversation in which this account used this idempotency key first."""
    row = await conn.fetchrow(
        """select a.channel, a.account, a.chat, a.thread from inbox i join addresses a on a.id = i.address_id
           where i.channel = 'api' and i.account = $1 and i.platform_id = $2 order by i.id limit 1""",
        account,
        key,
    )
    return Address(**row) if row else None


async def latest_key(conn: Connection, account: str, prefix: str) -> str | None:
    """The newest key of this account that begins so, if it is not older than an hour; all are of hexadecimal digits."""
    key: str | None = await conn.fetchval(
        """select platform_id from inbox
           where channel = 'api' and account = $1 and platform_id >= $2 and platform_id < $2 || 'g'
             and received_at > now() - interval '1 hour'
           order by id desc limit 1""",
        account,
        prefix,
    )
    return key


async def arrival(conn: Connection, channel: str, account: str, id: InboxId) -> InboxRow | None:
    """One arrival, if it came by this channel and account."""
    row = await conn.fetchrow(
        "select * from inbox where id = $1 and channel = $2 and account = $3", id, channel, account
    )
    return InboxRow(**row) if row else None

"""Deliveries, one row per part, in order per address.

pending → sending (committed before the request leaves) → sent | uncertain | failed
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Literal

from gateway.domain.channels.channel import Button
from gateway.domain.ids import AddressId, FileId, MessageId, OutboxId, PrincipalId
from gateway.domain.text.texts import storable
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import columns, fetch_all, fetch_first

LONGEST_SEND = timedelta(hours=1)
"""Much longer than any send is allowed to take."""

State = Literal["pending", "sending", "sent", "uncertain", "failed"]


@dataclass(frozen=True, slots=True)
class OutboxPart:
    """One part of a message: a text, or a file with the text as its caption."""

    text: str
    file: FileId | None = None
    buttons: tuple[Button, ...] = ()
    reply_to: str | None = None


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """One part of one message on its way."""

    id: OutboxId
    principal_id: PrincipalId
    address_id: AddressId
    message_id: MessageId
    part: int
    text: str
    notice: bool
    state: State
    attempts: int
    platform_id: str | None
    error: str | None
    created_at: datetime
    file_id: FileId | None
    buttons: tuple[Button, ...]
    reply_to: str | None


async def put(
    conn: Connection,
    principal: PrincipalId,
    address: AddressId,
    message: MessageId,
    parts: Sequence[OutboxPart],
    *,
    notice: bool = False,
) -> None:
    """Queue a message, already in parts, or more parts of it; commits together with their cause."""
    sql = """insert into outbox (principal_id, address_id, message_id, part, text, notice, file_id, buttons, reply_to)
             select $1, $2, $3, p.place - 1 + (select count(*) from outbox where message_id = $3),
                    p.text, $4, p.file, $5::jsonb -> p.place::int - 1, p.reply_to
             from unnest($6::text[], $7::uuid[], $8::text[]) with ordinality as p (text, file, reply_to, place)"""
    buttons = [[asdict(button) for button in part.buttons] for part in parts]
    told = columns([(part.text, part.file, part.reply_to) for part in parts], 3)
    await conn.execute(sql, principal, address, message, notice, buttons, *told)


async def due(
    conn: Connection, channels: Sequence[str], busy: Sequence[AddressId], limit: int, left: Sequence[OutboxId] = ()
) -> list[OutboxRow]:
    """The oldest due part of each address on these channels, except `busy` addresses.

    An address that another process sends to is skipped. A part is due, too, if this process `left` it as `sending`, or
    if it has been `sending` for longer than `LONGEST_SEND`.
    """
    sql = """select * from (
               select distinct on (o.address_id) o.* from outbox o join addresses a on a.id = o.address_id
               where o.state in ('pending', 'sending') and a.channel = any($1) and not o.address_id = any($2)
               order by o.address_id, o.id) head
             where (state = 'pending' and run_at <= now())
               or (state = 'sending' and (id = any($4) or sending_at < now() - $5::interval))
             order by id limit $3"""
    return await fetch_all(conn, OutboxRow, sql, list(channels), list(busy), limit, list(left), LONGEST_SEND)


async def touch(conn: Connection, row: OutboxId) -> None:
    """Write it, and change nothing."""
    await conn.execute("update outbox set error = error where id = $1", row)


async def mark_sending(conn: Connection, row: OutboxId) -> bool:
    """Mark it on its way, before the request leaves; False if somebody else did."""
    sql = """update outbox set state = 'sending', sending_at = now(), attempts = attempts + 1
             where id = $1 and state = 'pending' returning true"""
    return bool(await conn.fetchval(sql, row))


async def mark_sent(conn: Connection, row: OutboxId, platform_id: str) -> OutboxRow | None:
    """The platform has it. Returns the next due part for its address."""
    sql = """with sent as (
               update outbox set state = 'sent', sent_at = now(), platform_id = $2, error = null where id = $1
               returning address_id)
             select o.* from sent join outbox o using (address_id)
             where o.id <> $1 and o.state = 'pending' and o.run_at <= now() order by o.id limit 1"""
    return await fetch_first(conn, OutboxRow, sql, row, storable(platform_id))


async def delay(conn: Connection, row: OutboxId, delay: float, error: str) -> None:
    """Retry after `delay` seconds; nothing was shown."""
    sql = """update outbox set state = 'pending', run_at = now() + $2, error = $3
             where id = $1 and state in ('pending', 'sending')"""
    await conn.execute(sql, row, timedelta(seconds=delay), storable(error))


async def replace_file(conn: Connection, row: OutboxId, text: str, error: str) -> None:
    """Its file cannot go and nothing was shown: a text takes its place, and is due at once."""
    sql = """update outbox set state = 'pending', file_id = null, text = $2, error = $3
             where id = $1 and state in ('pending', 'sending')"""
    await conn.execute(sql, row, storable(text), storable(error))


async def mark_failed(conn: Connection, row: OutboxId, error: str) -> None:
    """Fail permanently, with the rest of the same message."""
    sql = """update outbox set state = 'failed', error = $2
             where message_id = (select message_id from outbox where id = $1) and state in ('pending', 'sending')"""
    await conn.execute(sql, row, storable(error))


async def withdraw(conn: Connection, address: AddressId, error: str) -> None:
    """Send nothing of what waits for an address."""
    sql = "update outbox set state = 'failed', error = $2 where address_id = $1 and state = 'pending'"
    await conn.execute(sql, address, error)


async def mark_uncertain(conn: Connection, row: OutboxId, error: str) -> bool:
    """It may have been shown; never sent again. Whether that is new."""
    sql = "update outbox set state = 'uncertain', error = $2 where id = $1 and state <> 'uncertain' returning true"
    return await conn.fetchval(sql, row, storable(error)) is not None


async def is_another_part_uncertain(conn: Connection, row: OutboxRow) -> bool:
    """Whether another part of the same message is uncertain too: its notice has been given."""
    sql = "select exists (select from outbox where message_id = $1 and id <> $2 and state = 'uncertain')"
    return bool(await conn.fetchval(sql, row.message_id, row.id))


async def left_sending(conn: Connection, channel: str) -> list[OutboxRow]:
    """Parts that a crash interrupted between request and receipt."""
    sql = """select o.* from outbox o join addresses a on a.id = o.address_id
             where o.state = 'sending' and a.channel = $1 order by o.id"""
    return await fetch_all(conn, OutboxRow, sql, channel)


async def of_message(conn: Connection, message: MessageId) -> list[OutboxRow]:
    """The delivery of one message, part by part."""
    return await fetch_all(conn, OutboxRow, "select * from outbox where message_id = $1 order by part", message)


async def waiting(conn: Connection) -> dict[str, str]:
    """By channel, how many messages wait to be delivered, since when and why; nothing of what goes out smoothly."""
    sql = """select a.channel, concat(count(distinct o.message_id), ' waiting since ',
                    to_char(min(o.created_at) at time zone 'utc', 'YYYY-MM-DD HH24:MI:SS "UTC"'),
                    ': ' || (array_agg(o.error order by o.id) filter (where o.error is not null))[1]) as told
           from outbox o join addresses a on a.id = o.address_id where o.state in ('pending', 'sending')
           group by a.channel having bool_or(o.error is not null) or min(o.created_at) < now() - interval '1 minute'"""
    return {row["channel"]: row["told"] for row in await conn.fetch(sql)}


async def undelivered(conn: Connection, principal: PrincipalId) -> list[OutboxRow]:
    """The first failed part of each message to this principal in the last week, the newest first."""
    sql = """select distinct on (message_id) * from outbox where state = 'failed' and principal_id = $1
               and created_at > now() - interval '7 days' order by message_id desc, part"""
    return await fetch_all(conn, OutboxRow, sql, principal)


async def send_again(tx: Connection, principal: PrincipalId, row: OutboxId) -> bool:
    """Queue what failed of this message; False if there is nothing, or its address has become another person's."""
    sql = """update outbox o set state = 'pending', run_at = now(), attempts = 0, error = null from addresses a
             where a.id = o.address_id and a.principal_id = $1 and o.principal_id = $1 and o.state = 'failed'
               and o.message_id = (select message_id from outbox where id = $2) returning true"""
    return bool(await tx.fetchval(sql, principal, row))


async def in_state(conn: Connection, state: State, limit: int = 100) -> list[OutboxRow]:
    """The latest parts in a state: dead letters and open questions are looked up here."""
    sql = "select * from outbox where state = $1 order by id desc limit $2"
    return await fetch_all(conn, OutboxRow, sql, state, limit)

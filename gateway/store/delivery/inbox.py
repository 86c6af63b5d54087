"""The ledger of everything that arrived. Its unique key is the de-duplication that survives restarts."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, assert_never

from gateway.domain.channels.routing import Decision, Edit, Ignore, RunCommand, StartTurn
from gateway.domain.conversation.inbound import Address, Inbound
from gateway.domain.ids import AddressId, EntryId, InboxId, MessageId, SessionId
from gateway.domain.people.access import identity_of
from gateway.domain.text.texts import storable
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_first, fetch_one, fetch_value
from gateway.store.delivery.addresses import AddressRow

Kind = Literal["message", "edit", "command", "button"]


@dataclass(frozen=True, slots=True)
class InboxRow:
    """Something that arrived once."""

    id: InboxId
    address_id: AddressId
    platform_id: str
    kind: Kind
    text: str
    platform_time: datetime
    received_at: datetime
    message_id: MessageId | None
    handled_at: datetime | None
    files: int
    """Files that came with a command, which takes none."""
    sender: str
    """The sender's identity; "" if it counts as nobody's word: sent with a token, or forwarded."""
    as_owner: bool
    """Whether it may act for the owner; false if it came with a token that may not."""


def kind_of(decision: Decision) -> Kind:
    """How an arrival is entered, by what is to be done with it."""
    match decision:
        case RunCommand():
            return "command"
        case Edit():
            return "edit"
        case StartTurn() | Ignore():
            return "message"
        case _:
            assert_never(decision)


async def enter(
    conn: Connection, inbound: Inbound, kind: Kind, at: AddressRow, entry: EntryId, *, handled: bool
) -> InboxId | None:
    """Enter an arrival; None if it has been seen before. A message's text is kept in its own row only."""
    sql = """insert into inbox (principal_id, address_id, channel, account, chat, journal_id, handled_at, entry_id,
                                kind, platform_id, platform_time, text, files, sender, as_owner, client)
             values ($1, $2, $3, $4, $5, (select id from journals where session_id = $6 and closed_at is null),
                     case when $7 then now() end, $8, $9, $10, $11, $12, $13, $14, $15, $16)
             on conflict do nothing returning id"""
    where = (at.principal_id, at.id, at.channel, at.account, at.chat, at.session_id)
    text = "" if kind == "message" else storable(inbound.text)
    files = len(inbound.attachments) if kind == "command" else 0
    sender = identity_of(inbound) if inbound.as_owner and not inbound.forwarded else ""
    options = inbound.client.options if inbound.client else None
    what = (kind, inbound.platform_id, inbound.sent_at, text, files, sender, inbound.as_owner, options)
    return await fetch_value(conn, InboxId, sql, *where, handled, entry, *what)


async def newest(conn: Connection) -> int:
    """The number of the last arrival; 0 before the first."""
    return int(await conn.fetchval("select coalesce(max(id), 0) from inbox"))


async def find_duplicate(conn: Connection, inbound: Inbound) -> InboxRow | None:
    """The first arrival of the same thing."""
    at = inbound.address
    sql = "select * from inbox where (channel, account, chat, platform_id) = ($1, $2, $3, $4)"
    return await fetch_first(conn, InboxRow, sql, at.channel, at.account, at.chat, inbound.platform_id)


async def client_input(conn: Connection, at: Address, ids: Sequence[str | None]) -> tuple[bool, str | None]:
    """Whether all these messages, by their platform ids, may act for the owner, and what came with the newest."""
    sql = """select coalesce(bool_and(as_owner), false) as as_owner, (array_agg(client order by id desc))[1] as client
             from inbox where (channel, account, chat) = ($1, $2, $3) and platform_id = any($4)"""
    row = await conn.fetchrow(sql, at.channel, at.account, at.chat, ids)
    return (row["as_owner"], row["client"]) if row else (False, None)


async def own_words(conn: Connection, message: MessageId) -> bool:
    """Whether somebody wrote the message themselves: it was neither forwarded nor sent with a token."""
    sql = """select i.sender <> '' from messages m join addresses a on a.id = m.address_id
             join inbox i on (i.channel, i.account, i.chat, i.platform_id)
                           = (a.channel, a.account, a.chat, m.platform_id)
             where m.id = $1"""
    return bool(await conn.fetchval(sql, message))


async def get(conn: Connection, arrival: InboxId) -> InboxRow:
    """One arrival; it must exist."""
    return await fetch_one(conn, InboxRow, "select * from inbox where id = $1", arrival)


async def set_message(conn: Connection, arrival: InboxId, message: MessageId) -> None:
    """Record which message an arrival turned into."""
    await conn.execute("update inbox set message_id = $2 where id = $1", arrival, message)


async def still_open(conn: Connection, arrival: InboxId) -> bool:
    """Whether the command's effect has not been committed yet; locks it."""
    found = await conn.fetchval("select id from inbox where id = $1 and handled_at is null for update", arrival)
    return found is not None


async def mark_handled(conn: Connection, arrival: InboxId, answer: MessageId | None) -> None:
    """The effect of a command commits together with this and with its answer."""
    await conn.execute("update inbox set handled_at = now(), message_id = $2 where id = $1", arrival, answer)


async def open_commands(conn: Connection) -> list[InboxId]:
    """Commands that a crash left open, in the order they came."""
    return [InboxId(r["id"]) for r in await conn.fetch("select id from inbox where handled_at is null order by id")]


async def last_speaker(conn: Connection, session: SessionId) -> tuple[str, str] | None:
    """Identity and name of the sender of the newest message that a turn of this session has taken."""
    sql = """select i.sender, m.sender as name from messages m
             join inbox i on i.address_id = m.address_id and i.message_id = m.id
             where m.session_id = $1 and m.kind = 'user' and m.seq is not null order by m.seq desc, i.id desc limit 1"""
    row = await conn.fetchrow(sql, session)
    return (row["sender"], row["name"]) if row and row["sender"] else None


async def address_of_key(conn: Connection, account: str, key: str) -> Address | None:
    """The API conversation in which this account used this idempotency key first."""
    sql = """select a.channel, a.account, a.chat, a.thread from inbox i join addresses a on a.id = i.address_id
             where i.channel = 'api' and i.account = $1 and i.platform_id = $2 order by i.id limit 1"""
    return await fetch_first(conn, Address, sql, account, key)


async def latest_key(conn: Connection, account: str, prefix: str) -> str | None:
    """The newest key of this account that begins so, if it is not older than an hour; all are of hexadecimal digits."""
    sql = """select platform_id from inbox
             where channel = 'api' and account = $1 and platform_id >= $2 and platform_id < $2 || 'g'
               and received_at > now() - interval '1 hour'
             order by id desc limit 1"""
    return await fetch_value(conn, str, sql, account, prefix)


async def find(conn: Connection, channel: str, account: str, id: InboxId) -> InboxRow | None:
    """One arrival, if it came by this channel and account."""
    sql = "select * from inbox where id = $1 and channel = $2 and account = $3"
    return await fetch_first(conn, InboxRow, sql, id, channel, account)

"""Unread: what people said, from its arrival until a turn takes it into the transcript, and whose words it quotes."""

import re
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import timedelta
from typing import TypeAlias
from uuid import uuid4

from gateway.domain.conversation.inbound import Inbound
from gateway.domain.ids import AddressId, EntryId, InboxId, InstanceId, MessageId, PrincipalId, SessionId
from gateway.domain.people.access import identity_of
from gateway.domain.principals import Label
from gateway.domain.text.texts import letters_in, storable
from gateway.domain.text.tokens import estimate
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import columns, fetch_all, fetch_value, statement
from gateway.store.delivery.addresses import AddressRow
from gateway.store.transcript.messages import REVISED, MessageRow, Withdrawn

PATIENCE = timedelta(seconds=90)
"""How long a message waits for its files before a turn takes it without them."""


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """A message in a private chat without files, quotes and the like; a turn waits `delay` seconds for more.

    The `holder` is the chat's principal; None: the member with the sender's identity.
    """

    inbound: Inbound
    text: str
    label: Label
    entry: EntryId
    holder: PrincipalId | None
    delay: float

    def row(self, instance: InstanceId) -> tuple[object, ...]:
        """The arguments of `accept`."""
        said, text, identity = self.inbound, storable(self.text), identity_of(self.inbound)
        what = (self.holder, identity, said.platform_id, said.sent_at, text, estimate(text), self.label)
        who = (identity if said.as_owner else "", said.as_owner, said.solo, self.entry)
        return (*astuple(said.address), *what, *who, uuid4(), instance, timedelta(seconds=self.delay))


Stored: TypeAlias = tuple[InboxId, AddressId, SessionId, MessageId]


async def accept(conn: Connection, said: Sequence[PlainMessage], instance: InstanceId) -> list[Stored | None]:
    """Store messages of one chat, each once, and queue their turn, in one statement and in order.

    None for one that is stored already, or whose chat is unknown or has another holder.
    """
    sql = """select m.place, a.* from unnest(
               $1::text[], $2::text[], $3::text[], $4::text[], $5::uuid[], $6::text[], $7::text[], $8::timestamptz[],
               $9::text[], $10::int[], $11::smallint[], $12::text[], $13::bool[], $14::bool[], $15::uuid[],
               $16::uuid[], $17::uuid[], $18::interval[]) with ordinality
               m (a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, place),
               accept(a, b, c, d, e, f, g, h, i, j, k, l, m.m, n, o, p, q, r) a"""
    rows = await conn.fetch(sql, *columns([each.row(instance) for each in said], 18))
    stored = {row["place"]: (row["arrival"], row["address"], row["session"], row["message"]) for row in rows}
    return [stored.get(place) for place in range(1, len(said) + 1)]


async def receive(
    conn: Connection,
    session: SessionId,
    principal: PrincipalId,
    address: AddressId,
    inbound: Inbound,
    label: Label,
    entry: EntryId,
    arrived: InboxId | None = None,
    model: str | None = None,
    origin: str | None = None,
) -> MessageId:
    """Store what a person said, unread: it gets its place in the transcript when a turn takes it.

    What `arrived` is noted to have become it. With a `model`, that one is asked first. Without an `origin` it is the
    channel.
    """
    text = storable(inbound.text)
    sql = """with said as (
               insert into messages (session_id, principal_id, address_id, kind, label, entry_id, model, origin, sender,
                                     text, tokens, platform_id, sent_at, solo, album, journal_id)
               values ($1, $2, $3, 'user', $4, $5, $7, $8, $9, $10, $11, $12, $13, $14, nullif($15, ''),
                       (select id from journals where session_id = $1 and closed_at is null)) returning id
             ), became as (
               update inbox set message_id = (select id from said) where id = $6
             )
             select id from said"""
    how = (label, entry, arrived, model, origin or inbound.address.channel)
    sender = "" if inbound.private else await _told_apart(conn, address, inbound)
    said = (sender, text, estimate(text), inbound.platform_id, inbound.sent_at, inbound.solo, storable(inbound.album))
    return MessageId(await conn.fetchval(sql, session, principal, address, *how, *said))


async def _told_apart(conn: Connection, address: AddressId, inbound: Inbound) -> str:
    """The sender's name; with the end of their id if somebody else there wrote under it lately."""
    sql = """select i.sender
             from (select sender, message_id from inbox where address_id = $1 order by id desc limit 300) i
             join messages m on m.id = i.message_id where m.sender = $2 and i.sender <> '' limit 1"""
    name = storable(inbound.sender.name)
    other = await conn.fetchval(sql, address, name)
    return name if other in {None, identity_of(inbound)} else f"{name} ({storable(inbound.sender.id)[-4:]})"


async def join(conn: Connection, address: AddressId, album: str, text: str, label: Label) -> MessageId | None:
    """Add a further part to the album's message, unless a turn has taken it or it has not come yet: then None.

    Its trust label never falls. The caller holds the session.
    """
    sql = """select id, text from messages
             where address_id = $1 and album = $2 and kind = 'user' and seq is null and closed_at is null
             order by id limit 1"""
    first = await conn.fetchrow(sql, address, storable(album))
    if first is None:
        return None
    whole = "\n".join(part for part in (first["text"], storable(text)) if part)
    change = "update messages set text = $2, tokens = $3, label = greatest(label, $4) where id = $1"
    await conn.execute(change, first["id"], whole, estimate(whole), label)
    return MessageId(first["id"])


async def edit(conn: Connection, address: AddressId, platform_id: str, text: str, label: Label) -> MessageId | None:
    """Apply an edit to a message, or to an earlier edit, that no turn has read or reads; None when it is too late.

    Its trust label never falls.
    """
    said = (address, platform_id, storable(text), estimate(text), label, REVISED)
    return await fetch_value(conn, MessageId, statement("transcript/edit_message"), *said)


async def withdraw(
    conn: Connection, address: AddressId, platform_id: str, how: Withdrawn, text: str
) -> list[MessageRow]:
    """Withdraw what turns have taken of a message, unless it says `text` already; also from memory.

    An edited message is several rows: what it said first, and each later text. A deleted one is also withdrawn and
    closed if no turn has taken it.
    """
    sql = statement("transcript/withdraw_message")
    return await fetch_all(conn, MessageRow, sql, address, platform_id, how, storable(text), REVISED)


async def note(conn: Connection, session: SessionId, message: MessageId) -> None:
    """Give a message its place now, without an answer: the next turn reads it. The caller holds the session."""
    sql = """with place as (update sessions set next_seq = next_seq + 1 where id = $1 returning next_seq - 1 as seq)
             update messages set seq = place.seq, closed_at = now() from place where id = $2"""
    await conn.execute(sql, session, message)


FOLLOWS_WITHIN = timedelta(seconds=10)
"""How soon after a message the next one of its sender counts as a part of the same thought."""


async def follows(conn: Connection, session: SessionId, answer: MessageId | None = None) -> bool:
    """Whether an unread message follows soon on one of its sender that the turn answers, or that has this `answer`.

    The edit of a message that is being answered counts however late it comes.
    """
    return bool(await conn.fetchval("select follows($1, $2, $3)", session, answer, FOLLOWS_WITHIN))


async def left(conn: Connection, session: SessionId) -> bool:
    """Whether something waits that no turn has taken."""
    sql = """select exists (select from messages where session_id = $1 and kind = 'user' and seq is null
                            and answered_by is null and closed_at is null)"""
    return bool(await conn.fetchval(sql, session))


async def take(conn: Connection, session: SessionId, *, joining: bool) -> list[MessageRow]:
    """Give unread messages their place in the transcript; the caller holds the session.

    A solo message is taken alone, at the start of a turn: it joins no turn that runs or that has open messages, and
    nothing joins its turn. One whose files are on their way stays unread, and so does what came after it.
    """
    rows = await conn.fetch("select * from take_unread($1, $2, $3)", session, joining, PATIENCE)
    return sorted((MessageRow.of(row) for row in rows), key=lambda row: row.seq or 0)


_QUOTED = """
select m.label, m.text, m.text as shown from inbox i join messages m on m.id = i.message_id
where (i.channel, i.account, i.chat, i.platform_id) = ($1, $2, $3, $4) and m.principal_id = $5 and m.kind = 'user'
  and m.withdrawn is null
union all
select m.label, m.text, o.text from addresses a
join outbox o on o.address_id = a.id join messages m on m.id = o.message_id
where (a.channel, a.account, a.chat, o.platform_id) = ($1, $2, $3, $4) and m.principal_id = $5 and m.kind = 'assistant'
union all
select m.label, m.text, m.text from addresses a join messages m on m.address_id = a.id
where (a.channel, a.account, a.chat, m.platform_id) = ($1, $2, $3, $4) and m.principal_id = $5 and m.origin = 'revised'
  and m.withdrawn is null
"""
_MARKUP = re.compile(r"\]\([^()\s]*\)|^[ \t]*(?:`{3,}|~{3,}).*$", re.MULTILINE)
_FILE = re.compile(r"\A\[(?:animation|audio|document|image|photo|ptv|sticker|video|voice|(?:voice|video) message)\]")


async def quoted_label(conn: Connection, at: AddressRow, inbound: Inbound) -> Label:
    """The label of the message that is quoted, if this principal's chat holds it and the quote is in its text.

    UNTRUSTED for all else: some platforms let the sender write the quote. What the gateway itself said may name others.
    """
    found = await conn.fetch(_QUOTED, at.channel, at.account, at.chat, inbound.quoted_id, at.principal_id)
    for row in found if inbound.quoted_id else ():
        if any(holds_quote(text, inbound.quoted) for text in (row["text"], row["shown"])):
            return Label(row["label"])
    return Label.UNTRUSTED


def holds_quote(text: str, quote: str) -> bool:
    """Whether the quote is in the text, as far as letters and digits tell: platforms show Markdown their own way."""
    part = letters_in(_FILE.sub("", quote))
    return part in letters_in(text) or part in letters_in(_MARKUP.sub(" ", text))

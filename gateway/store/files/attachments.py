"""Attachments: the files that came with a message, from their announcement to what was read out of them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from asyncpg import Record

from gateway.domain.conversation.inbound import Address, Attachment
from gateway.domain.conversation.transcript import Attached
from gateway.domain.ids import FileId, MessageId, PrincipalId, SessionId
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import columns, fetch_all
from gateway.store.transcript.messages import MessageRow

Columns: TypeAlias = Record | Mapping[str, Any]
"""A row of the view `attached`, as such or as JSON."""
LISTED_FILES = 50
"""The newest files of a conversation, which every prompt lists."""
LONGEST = 1_000
"""Characters that are kept of what a file is called, or is said to be."""
_LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class PendingAttachment:
    """An attachment that is still to be fetched, or to be read; `size` is claimed, in bytes."""

    id: UUID
    principal_id: PrincipalId
    channel: str
    ref: str
    name: str
    mime: str
    size: int | None
    file_id: FileId | None
    created_at: datetime

    @property
    def announced(self) -> Attachment:
        """As its channel announced it."""
        return Attachment(self.ref, self.name, self.mime, self.size)


async def add(
    conn: Connection, principal: PrincipalId, message: MessageId, channel: str, announced: Sequence[Attachment]
) -> None:
    """The files of a message, behind those it has; their bytes are still to be fetched."""
    sql = """insert into attachments (principal_id, session_id, message_id, place, channel, ref, name, mime, size)
             select $1, m.session_id, $2, n.place + a.place, $3, a.ref, a.name, a.mime, a.size
             from (select session_id from messages where id = $2) m,
                  (select count(*)::int - 1 as place from attachments where message_id = $2) n,
                  unnest($4::text[], $5::text[], $6::text[], $7::bigint[]) with ordinality
                    as a (ref, name, mime, size, place)"""
    await conn.execute(sql, principal, message, channel, *columns([_announced(each) for each in announced], 4))


def _announced(file: Attachment) -> tuple[object, ...]:
    name, mime = storable(file.name[:LONGEST]), storable(file.mime[:LONGEST])
    return storable(file.ref), name, mime, file.size and min(file.size, _LARGEST)


async def add_kept(
    conn: Connection, principal: PrincipalId, message: MessageId, channel: str, announced: Sequence[Attachment]
) -> list[FileId]:
    """The same for files that are here already, each named by its id; those of others are left out. Returns the ids."""
    sql = """insert into attachments
             (principal_id, session_id, message_id, place, channel, ref, name, mime, size, state, file_id)
           select $1, m.session_id, $2, n.place + row_number() over (order by a.place), $3, f.id::text, a.name, f.mime,
                  f.size, 'stored', f.id
           from (select session_id from messages where id = $2) m,
                (select count(*)::int - 1 as place from attachments where message_id = $2) n,
                unnest($4::uuid[], $5::text[]) with ordinality as a (file, name, place)
           join files f on f.id = a.file and f.principal_id = $1
           returning file_id"""
    ids, names = [_uuid(each.ref) for each in announced], [storable(each.name[:LONGEST]) for each in announced]
    rows = await conn.fetch(sql, principal, message, channel, ids, names)
    return [FileId(row["file_id"]) for row in rows]


async def of_quoted(
    conn: Connection, principal: PrincipalId, at: Address, platform_id: str
) -> tuple[list[Attachment], Label]:
    """The stored files of a message that this principal sent or got there, for `add_kept`, and its label."""
    sql = """select a.file_id::text as ref, a.name, a.size, max(m.label) over () as label
             from messages m join attachments a on a.message_id = m.id
             where m.principal_id = $5 and a.file_id is not null and m.withdrawn is distinct from 'deleted'
               and m.id in (
               select message_id from inbox where (channel, account, chat, platform_id) = ($1, $2, $3, $4)
               union select o.message_id from outbox o join addresses d on d.id = o.address_id
               where (d.channel, d.account, d.chat, o.platform_id) = ($1, $2, $3, $4))
             order by a.message_id, a.place"""
    rows = await conn.fetch(sql, at.channel, at.account, at.chat, platform_id, principal)
    found = [Attachment(row["ref"], row["name"], size=row["size"]) for row in rows]
    return found, Label(rows[0]["label"]) if rows else Label.UNTRUSTED


async def incomplete(conn: Connection, message: MessageId) -> list[PendingAttachment]:
    """Attachments of a message that have yet to be fetched or read, in order."""
    sql = """select a.id, a.principal_id, a.channel, a.ref, a.name, a.mime, a.size, a.file_id, a.created_at
             from attachments a left join files f on f.id = a.file_id
             where a.message_id = $1 and a.state <> 'failed' and f.derived_at is null order by a.place"""
    return await fetch_all(conn, PendingAttachment, sql, message)


async def mark_stored(conn: Connection, attachment: UUID, file: FileId) -> None:
    """Its bytes are here."""
    sql = "update attachments set state = 'stored', file_id = $2 where id = $1 and state = 'waiting'"
    await conn.execute(sql, attachment, file)


async def mark_failed(conn: Connection, attachment: UUID, error: str) -> None:
    """Its bytes will never be here; `error` is one line for people."""
    sql = "update attachments set state = 'failed', error = $2 where id = $1 and state = 'waiting'"
    await conn.execute(sql, attachment, storable(error))


async def with_attachments(conn: Connection, rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows with their files."""
    return _with(rows, await conn.fetch("select * from attached where message_id = any($1)", [row.id for row in rows]))


async def of_turn(
    conn: Connection, session: SessionId, rows: Sequence[MessageRow], limit: int = LISTED_FILES
) -> tuple[list[MessageRow], list[Attached], int]:
    """The rows with their files; those of the conversation that are here, each once, the newest last; their number.

    One statement, which finds nothing at once where nothing was ever sent: every turn begins with it. Of thousands it
    looks at the newest only, and counts no others.
    """
    sql = "select a.*, t.age, t.total from turn_files($1, $2, $3) t join attached a using (attachment_id)"
    return placed(rows, await conn.fetch(sql, session, [row.id for row in rows], limit))


def placed(rows: Sequence[MessageRow], records: Sequence[Columns]) -> tuple[list[MessageRow], list[Attached], int]:
    """The result of `of_turn`, from what `turn_files` found of them."""
    listed = sorted((record for record in records if record["age"]), key=lambda record: -record["age"])
    return _with(rows, records), [_attached(each) for each in listed], listed[0]["total"] if listed else 0


def _with(rows: Sequence[MessageRow], records: Sequence[Columns]) -> list[MessageRow]:
    found: defaultdict[MessageId, list[Attached]] = defaultdict(list)
    for record in sorted(records, key=lambda record: int(record["place"])):
        found[record["message_id"]].append(_attached(record))
    return [replace(row, attached=tuple(found[row.id])) if row.id in found else row for row in rows]


def _attached(row: Columns) -> Attached:
    known = {name: row[name] for name in _KNOWN}
    known["id"] = known["id"] and UUID(str(known["id"]))
    if row["coming"] or row["unread"]:
        known["problem"] = "it has not arrived yet" if row["coming"] else "it has not been read yet"
    return Attached(**known)


_KNOWN = [each.name for each in fields(Attached) if each.name != "excerpt"]


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None

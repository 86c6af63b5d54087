"""Attachments: the files that came with a message, from their announcement to what was read out of them."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from asyncpg import Record

from gateway.domain.attachments import Attached, State
from gateway.domain.ids import AddressId, FileId, MessageId, PrincipalId, SessionId
from gateway.domain.inbound import Attachment
from gateway.domain.texts import storable
from gateway.store.files import FileRow
from gateway.store.messages import PATIENCE, MessageRow
from gateway.store.pool import Connection


@dataclass(frozen=True, slots=True)
class Incomplete:
    """An attachment that is still to be fetched, or to be read; `size` is claimed, in bytes."""

    id: UUID
    principal_id: PrincipalId
    message_id: MessageId
    channel: str
    ref: str
    name: str
    mime: str
    size: int | None
    state: State
    file_id: FileId | None
    created_at: datetime

    @property
    def announced(self) -> Attachment:
        """As its channel told of it."""
        return Attachment(self.ref, self.name, self.mime, self.size)


async def add(
    conn: Connection, principal: PrincipalId, message: MessageId, channel: str, announced: Sequence[Attachment]
) -> None:
    """The files of a message, behind those it has; their bytes are still to be fetched."""
    await conn.execute(
        """insert into attachments (principal_id, message_id, place, channel, ref, name, mime, size)
           select $1, $2, n.place + a.place, $3, a.ref, a.name, a.mime, a.size
           from (select count(*)::int - 1 as place from attachments where message_id = $2) n,
                unnest($4::text[], $5::text[], $6::text[], $7::bigint[]) with ordinality
                  as a (ref, name, mime, size, place)""",
        principal,
        message,
        channel,
        [storable(each.ref) for each in announced],
        [storable(each.name) for each in announced],
        [storable(each.mime) for each in announced],
        [each.size for each in announced],
    )


async def add_kept(
    conn: Connection, principal: PrincipalId, message: MessageId, channel: str, announced: Sequence[Attachment]
) -> None:
    """The same for files that are here already, each named by its id; who names another's is not heard."""
    await conn.execute(
        """insert into attachments (principal_id, message_id, place, channel, ref, name, mime, size, state, file_id)
           select $1, $2, n.place + row_number() over (order by a.place), $3, f.id::text, a.name, f.mime, f.size,
                  'stored', f.id
           from (select count(*)::int - 1 as place from attachments where message_id = $2) n,
                unnest($4::uuid[], $5::text[]) with ordinality as a (file, name, place)
           join files f on f.id = a.file and f.principal_id = $1""",
        principal,
        message,
        channel,
        [_uuid(each.ref) for each in announced],
        [storable(each.name) for each in announced],
    )


async def link(conn: Connection, principal: PrincipalId, message: MessageId, channel: str, file: FileRow) -> None:
    """A file that is here already goes with a message."""
    announced = Attachment(str(file.id), file.path.rpartition("/")[2], file.mime, file.size)
    await add_kept(conn, principal, message, channel, [announced])


async def incomplete(conn: Connection, message: MessageId) -> list[Incomplete]:
    """What of a message is still to be fetched or read, in order."""
    rows = await conn.fetch(
        """select a.id, a.principal_id, a.message_id, a.channel, a.ref, a.name, a.mime, a.size, a.state, a.file_id,
                  a.created_at
           from attachments a left join files f on f.id = a.file_id
           where a.message_id = $1 and a.state <> 'failed' and f.derived_at is null order by a.place""",
        message,
    )
    return [Incomplete(**row) for row in rows]


async def awaited(conn: Connection, session: SessionId) -> AddressId | None:
    """Where the first unread message came from that waits for its files; None when a turn may begin."""
    found: AddressId | None = await conn.fetchval(
        """select m.address_id from messages m
           join attachments a on a.message_id = m.id left join files f on f.id = a.file_id
           where m.session_id = $1 and m.kind = 'user' and m.seq is null and m.answered_by is null
             and m.closed_at is null and m.created_at > now() - $2::interval
             and a.state <> 'failed' and f.derived_at is null
           order by m.id limit 1""",
        session,
        PATIENCE,
    )
    return found


async def stored(conn: Connection, attachment: UUID, file: FileId) -> None:
    """Its bytes are here."""
    await conn.execute(
        "update attachments set state = 'stored', file_id = $2 where id = $1 and state = 'waiting'", attachment, file
    )


async def failed(conn: Connection, attachment: UUID, error: str) -> None:
    """Its bytes will never be here; `error` is one line for people."""
    await conn.execute(
        "update attachments set state = 'failed', error = $2 where id = $1 and state = 'waiting'",
        attachment,
        storable(error),
    )


async def joined(conn: Connection, rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows with their files."""
    asked = [row.id for row in rows if row.kind in {"user", "assistant"}]
    found: defaultdict[MessageId, list[Attached]] = defaultdict(list)
    for record in await conn.fetch(
        """select a.*, f.id as known, f.path, f.mime as is_mime, f.size as is_size, f.text_path, f.view_path, f.pages,
                  f.description, f.problem, f.derived_at, f.origin
           from attachments a left join files f on f.id = a.file_id where a.message_id = any($1) order by a.place""",
        asked,
    ):
        found[record["message_id"]].append(_attached(record))
    return [replace(row, attached=tuple(found[row.id])) if row.id in found else row for row in rows]


async def index(conn: Connection, session: SessionId, limit: int) -> tuple[list[Attached], int]:
    """The files of a conversation that are here, each once, the newest last; and how many there are in all."""
    rows = await conn.fetch(
        """with latest as (
             select distinct on (a.file_id) a.id, a.created_at, a.place
             from messages m join attachments a on a.message_id = m.id
             where m.session_id = $1 and a.state = 'stored' and m.seq is not null
             order by a.file_id, a.created_at desc, a.place desc)
           select a.*, f.id as known, f.path, f.mime as is_mime, f.size as is_size, f.text_path, f.view_path, f.pages,
                  f.description, f.problem, f.derived_at, f.origin, count(*) over ()::int as total
           from latest l join attachments a on a.id = l.id join files f on f.id = a.file_id
           order by l.created_at desc, l.place desc limit $2""",
        session,
        limit,
    )
    return [_attached(row) for row in reversed(rows)], rows[0]["total"] if rows else 0


def _attached(row: Record) -> Attached:
    if row["known"] is None:
        problem = row["error"] or "it has not arrived yet"
        name = row["name"] or "file"
        return Attached(
            row["message_id"], row["place"], row["state"], name, row["mime"], row["size"] or 0, problem=problem
        )
    unread = row["derived_at"] is None and row["origin"] != "agent"
    return Attached(
        message_id=row["message_id"],
        place=row["place"],
        state=row["state"],
        name=row["name"] or row["path"].rpartition("/")[2],
        mime=row["is_mime"],
        size=row["is_size"],
        id=row["known"],
        path=row["path"],
        text_path=row["text_path"],
        view_path=row["view_path"],
        pages=row["pages"],
        description=row["description"],
        problem="it has not been read yet" if unread else row["problem"],
    )


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None

"""Entries: the rows a journal's file is a copy of, and what the database has of what is in the files."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from asyncpg import Record

from gateway.domain.conversation.inbound import Arrival
from gateway.domain.ids import EntryId, JournalId
from gateway.store.connection.pool import Connection

CLIPPED = 4_000
"""Characters of a tool's call or result that are copied."""

Kind = Literal["user", "assistant", "tool_intent", "tool_result", "summary", "notice", "command", "edit"]


@dataclass(frozen=True, slots=True)
class Line:
    """A row to copy: a message, or a command or an edit that arrived; `id` counts within its table.

    `files` says in a line each what came with it, and where it is.
    """

    id: int
    arrived: bool
    entry_id: EntryId
    kind: Kind
    at: datetime
    who: str
    text: str
    length: int
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a file is copied: the last message and the last arrival."""

    message: int = 0
    arrival: int = 0


async def lines(conn: Connection, journal: JournalId, after: Mark) -> list[Line]:
    """What the file should hold after this mark; tool calls and results cut, `length` being that of the whole."""
    # By time, but never against the order within a table: a row's time is when its transaction began.
    sql = """select id, false as arrived, entry_id, kind, created_at as at,
                    case when kind in ('tool_intent', 'tool_result') then coalesce(tool, '') else sender end as who,
                    case when kind in ('tool_intent', 'tool_result') then left(text, $4) else text end as text,
                    length(text) as length, max(created_at) over (order by id) as placed,
                    array(select concat(coalesce(nullif(a.name, ''), 'file'), ' → ' || f.path,
                                        ': ' || nullif(a.error, ''))
                          from attachments a left join files f on f.id = a.file_id
                          where a.message_id = messages.id order by a.place) as files
             from messages where journal_id = $1 and id > $2
             union all
             select id, true, entry_id, kind, received_at, '', text, length(text), max(received_at) over (order by id),
                    '{}'
             from inbox where journal_id = $1 and id > $3 and kind in ('command', 'edit')
             order by placed, arrived, id"""
    rows = await conn.fetch(sql, journal, after.message, after.arrival, CLIPPED)
    return [_line(row) for row in rows]


async def known(conn: Connection, arrivals: Sequence[Arrival]) -> set[EntryId]:
    """Which of these the database has: under their own id, or under another as the same thing on the platform."""
    sql = """select a.id from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[])
               as a (id, channel, account, chat, platform_id)
             where exists (select from inbox i where i.entry_id = a.id)
                or exists (select from inbox i where (i.channel, i.account, i.chat, i.platform_id)
                           = (a.channel, a.account, a.chat, a.platform_id))"""
    rows = await conn.fetch(
        sql,
        [arrival.id for arrival in arrivals],
        [arrival.inbound.address.channel for arrival in arrivals],
        [arrival.inbound.address.account for arrival in arrivals],
        [arrival.inbound.address.chat for arrival in arrivals],
        [arrival.inbound.platform_id for arrival in arrivals],
    )
    return {EntryId(row["id"]) for row in rows}


def _line(row: Record) -> Line:
    known = {name: value for name, value in row.items() if name != "placed"}
    return Line(**{**known, "files": tuple(row["files"])})

"""Journals: which file holds the readable copy of which stretch of a session, and the rows it is a copy of."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Literal

from gateway.domain.conversation.inbound import Address, Arrival
from gateway.domain.ids import EntryId, JournalId, PrincipalId, SessionId
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import (
    columns,
    fetch_all,
    fetch_first,
    fetch_one,
    fetch_record,
    fetch_value,
    statement,
)

MAX_COPIED = 4_000
"""Characters of a tool's call or result that are copied."""

Kind = Literal["user", "assistant", "tool_intent", "tool_result", "summary", "notice", "command", "edit"]


@dataclass(frozen=True, slots=True)
class JournalLine:
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
class CopyMark:
    """How far a file is copied: the last message and the last arrival."""

    message: int = 0
    arrival: int = 0


async def lines(conn: Connection, journal: JournalId, after: CopyMark) -> list[JournalLine]:
    """The file's lines after this mark; tool calls and results are cut, `length` is that of the whole."""
    sql = "select * from journal_lines($1, $2, $3, $4)"
    return await fetch_all(conn, JournalLine, sql, journal, after.message, after.arrival, MAX_COPIED)


async def known_arrivals(conn: Connection, arrivals: Sequence[Arrival]) -> set[EntryId]:
    """Which of these the database has: under their own id, or under another as the same thing on the platform."""
    sql = """select a.id from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
               as a (id, platform_id, channel, account, chat, thread)
             where exists (select from inbox i where i.entry_id = a.id)
                or exists (select from inbox i where (i.channel, i.account, i.chat, i.platform_id)
                           = (a.channel, a.account, a.chat, a.platform_id))"""
    said = [(each.id, each.inbound.platform_id, *astuple(each.inbound.address)) for each in arrivals]
    return {EntryId(row["id"]) for row in await conn.fetch(sql, *columns(said, 6))}


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One file: open while its session is, closed by `/new` or compaction, then filed under `memory/`."""

    id: JournalId
    principal_id: PrincipalId
    session_id: SessionId
    path: str
    opened_at: datetime


@dataclass(frozen=True, slots=True)
class UnopenedJournal:
    """A session with rows that have no file."""

    session_id: SessionId
    principal_id: PrincipalId
    ended: bool
    since: datetime


@dataclass(frozen=True, slots=True)
class ListedJournal:
    """A journal as the index lists it."""

    path: str
    channel: str
    summary: str


async def begin(
    tx: Connection, session: SessionId, principal: PrincipalId, path: str, arrived: Sequence[EntryId] = ()
) -> JournalRow | None:
    """Open a journal and take in the session's rows without one, and the commands and edits that arrived before it.

    None if one is open or the path is taken. The caller holds the session.
    """
    sql = """with opened as (insert into journals (principal_id, session_id, path) values ($2, $1, $3)
                             on conflict do nothing returning *),
               said as (update messages set journal_id = opened.id from opened
                        where messages.session_id = $1 and journal_id is null),
               arrived as (update inbox set journal_id = opened.id from opened
                           where entry_id = any($4) and journal_id is null and kind <> 'message')
             select * from opened"""
    return await fetch_first(tx, JournalRow, sql, session, principal, path, list(arrived))


async def open_for(conn: Connection, session: SessionId) -> JournalRow | None:
    """The file the session goes into now."""
    sql = "select * from journals where session_id = $1 and closed_at is null"
    return await fetch_first(conn, JournalRow, sql, session)


async def at_path(conn: Connection, principal: PrincipalId, path: str) -> JournalRow | None:
    """The journal whose file this is."""
    sql = "select * from journals where principal_id = $1 and path = $2"
    return await fetch_first(conn, JournalRow, sql, principal, path)


async def all_open(conn: Connection, after: SessionId, limit: int) -> list[JournalRow]:
    """The files of open sessions after this one, in the order of the sessions."""
    sql = """select * from journals where closed_at is null and session_id > $1
             order by session_id limit $2"""
    return await fetch_all(conn, JournalRow, sql, after, limit)


async def newest(conn: Connection) -> CopyMark:
    """The last rows there are that any file may have."""
    sql = """select coalesce((select max(id) from messages), 0) as message,
                    coalesce((select max(id) from inbox), 0) as arrival"""
    return await fetch_one(conn, CopyMark, sql)


async def with_rows_after(conn: Connection, mark: CopyMark) -> list[JournalRow]:
    """The files of open sessions that lack rows after this mark."""
    sql = """select * from journals where closed_at is null and id in (
               select journal_id from messages where id > $1
               union select journal_id from inbox where id > $2 and kind in ('command', 'edit'))"""
    return await fetch_all(conn, JournalRow, sql, mark.message, mark.arrival)


async def unfiled(conn: Connection, limit: int) -> list[JournalRow]:
    """Closed journals that are still among the open ones, the oldest first."""
    sql = "select * from journals where closed_at is not null and filed_at is null order by id limit $1"
    return await fetch_all(conn, JournalRow, sql, limit)


async def current(conn: Connection, address: Address) -> tuple[PrincipalId, str | None] | None:
    """The principal of an address's conversation and the path of its open file; None for an unknown address."""
    sql = """select a.principal_id, j.path from addresses a
             left join journals j on j.session_id = a.session_id and j.closed_at is null
             where (a.channel, a.account, a.chat, a.thread) = ($1, $2, $3, $4)"""
    row = await conn.fetchrow(sql, *astuple(address))
    return (row["principal_id"], row["path"]) if row else None


async def close(tx: Connection, session: SessionId, summary: str) -> bool:
    """Close the session's file; what comes after goes into another. The caller holds the session."""
    sql = """update journals set closed_at = now(), summary = $2
             where session_id = $1 and closed_at is null returning true"""
    return bool(await tx.fetchval(sql, session, summary))


async def outline(conn: Connection, session: SessionId) -> tuple[str, str, int]:
    """The first question and the last answer, cut, of the session's open file or what has none yet; what it counts."""
    row = await fetch_record(conn, statement("transcript/journal_outline"), session)
    return row["asked"], row["answered"], row["messages"]


async def unopened(conn: Connection, limit: int, session: SessionId | None = None) -> list[UnopenedJournal]:
    """Sessions, or this session, with rows that no file was opened for; what was imported, deleted or said in a
    temporary chat gets none."""
    sql = """select s.id as session_id, s.principal_id, s.ended_at is not null as ended, m.since
             from (select session_id, min(created_at) as since from messages
                   where journal_id is null and origin not like 'import:%'
                     and ($2::uuid is null or session_id = $2)
                     and session_id not in
                       (select session_id from addresses where channel = 'web' and starts_with(thread, 'temporary-'))
                     and exists (select from sessions where id = messages.session_id and deleted_at is null)
                   group by session_id limit $1) m
             join sessions s on s.id = m.session_id"""
    return await fetch_all(conn, UnopenedJournal, sql, limit, session)


async def unattended(conn: Connection, session: SessionId) -> bool:
    """Whether the session is that of an unattended run: what such a run said to a person is in their chat."""
    return bool(await conn.fetchval("select unattended from sessions where id = $1", session))


async def listed(conn: Connection, journal: JournalRow, *, others: bool = True) -> list[ListedJournal]:
    """This journal and the `others` of its principal that are filed, but for what ran by itself: that told a chat."""
    sql = """select j.path, j.summary, coalesce((
               select m.origin from messages m where m.journal_id = j.id and m.kind = 'user' order by m.id limit 1), '')
               as channel
             from (select * from journals where id = $2
                   union all
                   select * from journals where $3 and principal_id = $1 and filed_at is not null and id <> $2) j
             join sessions s on s.id = j.session_id
             where not s.unattended"""
    return await fetch_all(conn, ListedJournal, sql, journal.principal_id, journal.id, others)


async def file_away(conn: Connection, journal: JournalId, path: str) -> None:
    """The file is where it stays."""
    await conn.execute("update journals set path = $2, filed_at = now() where id = $1", journal, path)


async def label(conn: Connection, principal: PrincipalId, path: str, *, index: bool) -> Label | None:
    """The label of the session a file copies; with `index` the highest of all sessions that have been filed."""
    sql = """select max(s.label) from journals j join sessions s on s.id = j.session_id
             where j.principal_id = $1 and (j.path = $2 or ($3 and j.filed_at is not null))"""
    return await fetch_value(conn, Label, sql, principal, path, index)

"""Journals: which file holds the readable copy of which stretch of a session."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from asyncpg import Record

from gateway.domain.ids import JournalId, PrincipalId, SessionId
from gateway.domain.inbound import Address
from gateway.store.pool import Connection


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One file: open while its session goes on, closed by `/new` or compaction, then filed under `memory/`."""

    id: JournalId
    principal_id: PrincipalId
    session_id: SessionId
    path: str
    summary: str
    opened_at: datetime
    closed_at: datetime | None
    filed_at: datetime | None


@dataclass(frozen=True, slots=True)
class Current:
    """What an address writes into now; `path` is None while its session has no open file."""

    principal_id: PrincipalId
    session_id: SessionId
    path: str | None


@dataclass(frozen=True, slots=True)
class Unopened:
    """A session with rows that have no file."""

    session_id: SessionId
    principal_id: PrincipalId
    ended: bool
    since: datetime


@dataclass(frozen=True, slots=True)
class Said:
    """What a stretch of a session was about; texts are cut."""

    asked: str
    answered: str
    messages: int


@dataclass(frozen=True, slots=True)
class Filed:
    """A filed journal, as the index lists it."""

    path: str
    channel: str
    summary: str


def _row(row: Record | None) -> JournalRow | None:
    return JournalRow(**row) if row else None


async def begin(tx: Connection, session: SessionId, principal: PrincipalId, path: str) -> JournalRow | None:
    """Open a journal and take in the session's rows without one; None if one is open or the path is taken.

    The caller holds the session.
    """
    row = _row(
        await tx.fetchrow(
            """insert into journals (principal_id, session_id, path) values ($2, $1, $3)
               on conflict do nothing returning *""",
            session,
            principal,
            path,
        )
    )
    if row is not None:
        await tx.execute(
            "update messages set journal_id = $2 where session_id = $1 and journal_id is null", session, row.id
        )
    return row


async def open_for(conn: Connection, session: SessionId) -> JournalRow | None:
    """The file the session goes into now."""
    return _row(await conn.fetchrow("select * from journals where session_id = $1 and closed_at is null", session))


async def all_open(conn: Connection) -> list[JournalRow]:
    """The files of all sessions that go on."""
    return [JournalRow(**row) for row in await conn.fetch("select * from journals where closed_at is null")]


async def current(conn: Connection, address: Address) -> Current | None:
    """Where what is said at an address goes; None where nothing was ever said."""
    row = await conn.fetchrow(
        """select a.principal_id, a.session_id, j.path from addresses a
           left join journals j on j.session_id = a.session_id and j.closed_at is null
           where (a.channel, a.account, a.chat, a.thread) = ($1, $2, $3, $4)""",
        address.channel,
        address.account,
        address.chat,
        address.thread,
    )
    return Current(**row) if row else None


async def close(tx: Connection, session: SessionId, summary: str) -> bool:
    """Close the session's file; what comes after goes into another. The caller holds the session."""
    done = await tx.fetchval(
        """update journals set closed_at = now(), summary = $2
           where session_id = $1 and closed_at is null returning true""",
        session,
        summary,
    )
    return bool(done)


async def outline(conn: Connection, session: SessionId) -> Said:
    """What the session's open file, or what has no file yet, is about."""
    row = await conn.fetchrow(
        """with here as (
             select m.id, m.kind, m.text from messages m
             left join journals j on j.id = m.journal_id
             where m.session_id = $1 and (m.journal_id is null or j.closed_at is null)
               and (m.kind = 'user' or (m.kind = 'assistant' and m.final)))
           select coalesce((select left(text, 400) from here where kind = 'user' order by id limit 1), '') as asked,
                  coalesce((select left(text, 400) from here where kind = 'assistant' order by id desc limit 1), '')
                    as answered,
                  (select count(*)::int from here) as messages""",
        session,
    )
    assert row is not None, "an aggregate always has a row"
    return Said(**row)


async def unopened(conn: Connection, limit: int) -> list[Unopened]:
    """Sessions with rows that no file was opened for."""
    rows = await conn.fetch(
        """select s.id as session_id, s.principal_id, s.ended_at is not null as ended, m.since
           from (select session_id, min(created_at) as since from messages where journal_id is null
                 group by session_id limit $1) m
           join sessions s on s.id = m.session_id""",
        limit,
    )
    return [Unopened(**row) for row in rows]


async def unopened_in(conn: Connection, session: SessionId) -> Unopened | None:
    """The session, if it has rows that no file was opened for."""
    row = await conn.fetchrow(
        """select s.id as session_id, s.principal_id, s.ended_at is not null as ended, min(m.created_at) as since
           from sessions s join messages m on m.session_id = s.id and m.journal_id is null
           where s.id = $1 group by s.id""",
        session,
    )
    return Unopened(**row) if row else None


async def unfiled(conn: Connection, limit: int) -> list[JournalRow]:
    """Closed journals that are still among the open ones, the oldest first."""
    rows = await conn.fetch(
        "select * from journals where closed_at is not null and filed_at is null order by id limit $1", limit
    )
    return [JournalRow(**row) for row in rows]


async def taken(conn: Connection, principal: PrincipalId, path: str) -> bool:
    """Whether another journal has this path already."""
    return bool(
        await conn.fetchval(
            "select exists (select from journals where principal_id = $1 and path = $2)", principal, path
        )
    )


async def file_away(conn: Connection, journal: JournalId, path: str) -> None:
    """The file is where it stays."""
    await conn.execute("update journals set path = $2, filed_at = now() where id = $1", journal, path)


async def of_principal(conn: Connection, principal: PrincipalId) -> list[Filed]:
    """Every filed journal, the newest first."""
    rows = await conn.fetch(
        """select j.path, j.summary, coalesce((
             select m.origin from messages m where m.journal_id = j.id and m.kind = 'user' order by m.id limit 1), '')
             as channel
           from journals j where j.principal_id = $1 and j.filed_at is not null order by j.path desc""",
        principal,
    )
    return [Filed(**row) for row in rows]


async def channel_of(conn: Connection, journal: JournalId) -> str:
    """The channel the journal's first words came by; empty if nobody said anything."""
    found = await conn.fetchval(
        "select origin from messages where journal_id = $1 and kind = 'user' order by id limit 1", journal
    )
    return str(found or "")


async def registered(conn: Connection, principal: PrincipalId, paths: Sequence[str]) -> dict[str, SessionId]:
    """Which of these files the database knows, and whose they are."""
    rows = await conn.fetch(
        "select path, session_id from journals where principal_id = $1 and path = any($2)", principal, list(paths)
    )
    return {row["path"]: SessionId(row["session_id"]) for row in rows}

"""Imports: conversations that were held elsewhere, and what tells whether something was imported before."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from uuid import uuid4

from gateway.domain.ids import MemoryId, MessageId, PrincipalId, ScheduleId, SessionId
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.text.tokens import estimate
from gateway.store.connection.pool import Connection, lock_name
from gateway.store.connection.rows import columns, fetch_first, fetch_value, statement

PASSPORT = "passport"
"""The source of memories that a gateway exported, and of the messages that they name."""


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """A message of an imported conversation; `key` is its own within that."""

    key: str
    kind: Literal["user", "assistant"]
    text: str
    at: datetime
    label: Label


@dataclass(frozen=True, slots=True)
class ImportOrigin:
    """The origin of an import: its source, file and line, and time."""

    source: str
    place: str
    imported_at: datetime


async def alone(tx: Connection, principal: PrincipalId) -> None:
    """Wait until no other import of this principal is storing something, and keep others off until the commit."""
    await lock_name(tx, f"supaclaw.import {principal}")


async def known_keys(conn: Connection, principal: PrincipalId, agent: str, keys: Collection[bytes]) -> set[bytes]:
    """Which of these were imported before."""
    sql = "select key from imports where principal_id = $1 and agent = $2 and key = any($3)"
    return {row["key"] for row in await conn.fetch(sql, principal, agent, list(keys))}


async def note(
    tx: Connection,
    principal: PrincipalId,
    agent: str,
    key: bytes,
    source: str,
    place: str,
    *,
    session: SessionId | None = None,
    memory: MemoryId | None = None,
    schedule: ScheduleId | None = None,
) -> None:
    """Remember that something was imported, and what it became; the caller knows that it was not before."""
    sql = """insert into imports (principal_id, agent, key, source, place, session_id, memory_id, schedule_id)
             values ($1, $2, $3, $4, $5, $6, $7, $8)"""
    await tx.execute(sql, principal, agent, key, source, storable(place), session, memory, schedule)


async def session_of(conn: Connection, principal: PrincipalId, agent: str, key: bytes) -> SessionId | None:
    """The session that a conversation became."""
    sql = "select session_id from imports where principal_id = $1 and agent = $2 and key = $3"
    return await fetch_value(conn, SessionId, sql, principal, agent, key)


async def said(conn: Connection, session: SessionId, keys: Collection[str]) -> set[str]:
    """Which of these messages the session has."""
    sql = """select platform_id from messages
             where session_id = $1 and platform_id = any($2) and origin like 'import:%'"""
    return {row["platform_id"] for row in await conn.fetch(sql, session, list(keys))}


async def carried_messages(conn: Connection, principal: PrincipalId, keys: Collection[str]) -> dict[str, MessageId]:
    """The messages that a passport names as "SESSION:ID", by these keys: those of then, or their imported copies."""
    sql = """select session_id || ':' || id as key, id from messages where principal_id = $1 and id = any($2::bigint[])
             union all select m.platform_id, m.id from messages m join imports i using (session_id)
             where i.principal_id = $1 and i.source = $4 and m.platform_id = any($3)"""
    ids = [int(key.rpartition(":")[2]) for key in keys]
    rows = await conn.fetch(sql, principal, ids, list(keys), PASSPORT) if keys else []
    return {row["key"]: MessageId(row["id"]) for row in rows if row["key"] in keys}


async def start(tx: Connection, principal: PrincipalId, agent: str, at: datetime) -> SessionId:
    """A new session that has ended already: nothing is said in it but what was."""
    session = SessionId(uuid4())
    sql = """insert into sessions (id, principal_id, agent, label, started_at, ended_at, spoken_at)
             values ($1, $2, $3, 0, $4, $4, $4)"""
    await tx.execute(sql, session, principal, agent, at)
    return session


async def end(tx: Connection, session: SessionId) -> None:
    """End an imported session as a chat, which its agent's next session is shown."""
    await tx.execute("update sessions set ended_by_person = true where id = $1", session)


async def append(
    tx: Connection, session: SessionId, principal: PrincipalId, origin: str, rows: Sequence[ImportedRow]
) -> None:
    """Add messages that the session lacks, in order; none of them waits for an answer."""
    said = [(row.key, row.kind, row.text, row.at, row.label, estimate(row.text)) for row in rows]
    await tx.execute(statement("transcript/import_messages"), session, principal, origin, *columns(said, 6))


async def whence(conn: Connection, principal: PrincipalId, memory: MemoryId) -> ImportOrigin | None:
    """The origin of an imported memory; None if it was not imported."""
    sql = "select source, place, imported_at from imports where principal_id = $1 and memory_id = $2"
    return await fetch_first(conn, ImportOrigin, sql, principal, memory)

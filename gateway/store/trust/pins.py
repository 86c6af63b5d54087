"""Pins: contents that the owner confirmed, by kind and name, and those that wait for it; whatever differs is off."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_value
from gateway.store.trust import audit
from gateway.store.trust.audit import Event

PinState: TypeAlias = Literal["on", "off", "staged"]


@dataclass(frozen=True, slots=True)
class Pin:
    """One content; `staged` is one that waits, beside the one that was confirmed before it."""

    kind: str
    name: str
    state: PinState
    sha256: str
    source: str
    changed_at: datetime


async def list_all(conn: Connection, kind: str) -> list[Pin]:
    """Those of a kind, by name."""
    sql = "select kind, name, state, sha256, source, changed_at from pins where kind = $1 order by name, state"
    return await fetch_all(conn, Pin, sql, kind)


async def confirmed(conn: Connection, kind: str) -> dict[str, str]:
    """The hashes of those that are on, by name."""
    rows = await conn.fetch("select name, sha256 from pins where kind = $1 and state = 'on'", kind)
    return {row["name"]: row["sha256"] for row in rows}


async def list_contents(conn: Connection, kind: str) -> list[tuple[Pin, bytes]]:
    """All of a kind with what was confirmed or waits, by name."""
    sql = """select kind, name, state, sha256, source, changed_at, content from pins where kind = $1
             order by name, state"""
    return [(Pin(*about), content) for *about, content in await conn.fetch(sql, kind)]


async def content(conn: Connection, kind: str, name: str, *, staged: bool) -> bytes | None:
    """The bytes that were confirmed, or that wait for it."""
    sql = "select content from pins where kind = $1 and name = $2 and (state = 'staged') = $3"
    return await fetch_value(conn, bytes, sql, kind, name, staged)


async def put(
    conn: Connection, kind: str, name: str, state: PinState, sha256: str, content: bytes, source: str
) -> None:
    """Store a content; a staged one replaces what was staged, any other one what was confirmed and what was staged."""
    if state != "staged":
        await unstage(conn, kind, name)
    sql = """insert into pins (kind, name, state, sha256, content, source) values ($1, $2, $3, $4, $5, $6)
           on conflict (kind, name, (state = 'staged')) do update set state = excluded.state, sha256 = excluded.sha256,
             content = excluded.content, source = excluded.source, changed_at = now()"""
    await conn.execute(sql, kind, name, state, sha256, content, source)
    if state != "staged":
        await audit.note(conn, Event.PINNED, f"{kind} {name}", detail=sha256)


async def switch_off(conn: Connection, kind: str, name: str) -> bool:
    """Switch a confirmed content off but keep it; False if there is none."""
    sql = """update pins set state = 'off', changed_at = now() where kind = $1 and name = $2 and state <> 'staged'
             returning true"""
    done = await conn.fetchval(sql, kind, name)
    if done:
        await audit.note(conn, Event.UNPINNED, f"{kind} {name}")
    return bool(done)


async def remove(conn: Connection, kind: str, name: str) -> None:
    """Forget it, confirmed and staged."""
    await switch_off(conn, kind, name)
    await conn.execute("delete from pins where kind = $1 and name = $2", kind, name)


async def unstage(conn: Connection, kind: str, name: str) -> None:
    """Forget what waits."""
    await conn.execute("delete from pins where kind = $1 and name = $2 and state = 'staged'", kind, name)

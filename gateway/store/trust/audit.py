"""The audit trail: who allowed, changed and used what, as ids and keyed hashes, each row bound to the one before."""

import hmac
import json
from collections.abc import AsyncIterator
from dataclasses import astuple, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from secrets import token_hex

from gateway.domain.ids import PrincipalId
from gateway.store.connection.pool import Connection, lock_name
from gateway.store.connection.rows import fetch_all, fetch_record

_PAGE = 1_000


class Event(StrEnum):
    """The acts that are recorded."""

    ASKED = "approval asked"
    APPROVED = "approval approved"
    DENIED = "approval denied"
    EXPIRED = "approval expired"
    CLOSED = "approval closed"
    RUN = "approval run"
    GRANTED = "grant given"
    GRANT_USED = "grant used"
    GRANT_REVOKED = "grant revoked"
    TOKEN_MADE = "token made"
    TOKEN_REVOKED = "token revoked"
    SIGNED_IN = "signed in"
    OWNER_SET = "owner set"
    MEMBER_LET_IN = "member let in"
    MEMBER_REMOVED = "member removed"
    ACCOUNT_LINKED = "account linked"
    ACCOUNT_UNLINKED = "account unlinked"
    CONFIG_WRITTEN = "config written"
    PINNED = "pin confirmed"
    UNPINNED = "pin switched off"
    SECRET_USED = "secret used"


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One act; `actor` and `detail` are keyed hashes, equal where what they stand for is."""

    seq: int
    at: datetime
    event: str
    principal_id: PrincipalId | None
    subject: str
    actor: bytes
    detail: bytes
    prev: bytes
    hash: bytes

    def sealed(self, key: bytes) -> bytes:
        """The hash that the row must have."""
        whose = str(self.principal_id) if self.principal_id else None
        facts = [self.seq, self.at.astimezone(UTC).isoformat(), self.event, whose, self.subject]
        exact = json.dumps([*facts, self.actor.hex(), self.detail.hex(), self.prev.hex()], separators=(",", ":"))
        return hmac.digest(key, exact.encode(), sha256)


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """How many rows are in order, the newest one's hash, and what is wrong with the first that is not."""

    rows: int
    head: str
    broken: str = ""


async def note(
    tx: Connection,
    event: Event,
    subject: str = "",
    *,
    principal: PrincipalId | None = None,
    by: str = "",
    detail: str = "",
) -> None:
    """Write down an act, in its own transaction; `by` (who) and `detail` (exactly what) are kept as keyed hashes.

    It should come last in the transaction: until the commit, no other one writes.
    """
    await lock_name(tx, "supaclaw.audit")
    key = await _key(tx)
    sql = """select now() as at, coalesce(last.seq, 0) + 1 as seq, coalesce(last.hash, '') as prev
             from (select) here left join (select seq, hash from audit order by seq desc limit 1) last on true"""
    place = await fetch_record(tx, sql)
    actor, exact = (_hidden(key, text) for text in (by, detail))
    row = AuditRow(place["seq"], place["at"], event, principal, subject, actor, exact, place["prev"], b"")
    sql = "insert into audit values ($1, $2, $3, $4, $5, $6, $7, $8, $9)"
    await tx.execute(sql, *astuple(replace(row, hash=row.sealed(key))))


async def newest(conn: Connection, limit: int) -> list[AuditRow]:
    """The newest acts, newest first."""
    return await fetch_all(conn, AuditRow, "select * from audit order by seq desc limit $1", limit)


async def verify(conn: Connection) -> AuditVerdict:
    """Follow the chain from its beginning; `holds` then tells whether a head noted earlier is part of it."""
    key, rows, prev = await _key(conn), 0, b""
    async for row in _all(conn):
        rows += 1
        if row.seq != rows:
            return AuditVerdict(rows - 1, prev.hex(), f"row {rows} is missing")
        if row.prev != prev:
            return AuditVerdict(rows - 1, prev.hex(), f"row {row.seq} does not follow row {row.seq - 1}")
        if not hmac.compare_digest(row.sealed(key), row.hash):
            return AuditVerdict(rows - 1, prev.hex(), f"row {row.seq} was changed")
        prev = row.hash
    return AuditVerdict(rows, prev.hex())


async def holds(conn: Connection, head: str) -> bool:
    """Whether a row has this hash: if not, the trail was cut, or written anew, since somebody noted it."""
    return bool(await conn.fetchval("select exists (select from audit where encode(hash, 'hex') = $1)", head))


async def _all(conn: Connection) -> AsyncIterator[AuditRow]:
    last = -1
    sql = "select * from audit where seq > $1 order by seq limit $2"
    while page := await fetch_all(conn, AuditRow, sql, last, _PAGE):
        for row in page:
            yield row
        last = page[-1].seq


async def _key(conn: Connection) -> bytes:
    """Kept beside the rows, so that a restored database can be verified; made when it is first needed."""
    key = await conn.fetchval("select value #>> '{}' from meta where key = 'audit_key'")
    if key is None:
        sql = "insert into meta (key, value) values ('audit_key', $1) on conflict (key) do nothing"
        await conn.execute(sql, token_hex(32))
        key = await conn.fetchval("select value #>> '{}' from meta where key = 'audit_key'")
    return bytes.fromhex(key)


def _hidden(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), sha256) if text else b""

"""Branches: conversations that go on from within another one."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

from gateway.domain.ids import MessageId, PrincipalId, SessionId
from gateway.domain.principals import Label
from gateway.store import sessions
from gateway.store.connection.pool import Connection
from gateway.store.transcript import messages
from gateway.store.transcript.messages import MessageRow

OTHERS = 1_000
"""Messages of other versions that are told apart, the newest."""


DEEPEST = 32
"""Branches of branches that are made; a retry of a retry is its sibling, and no deeper."""

_SAID = """
select m.* from past($1) p join messages m on m.session_id = p.id and m.seq <= p.until
where m.kind = 'user' and m.id = $2"""
_NEWEST = """
select m.* from past($1) p cross join lateral (
  select * from messages where session_id = p.id and seq <= p.until and kind = 'user' order by seq desc limit 1) m
order by m.seq desc limit 1"""


async def start(
    tx: Connection, principal: PrincipalId, session: SessionId, seq: int, label: Label, *, unattended: bool = False
) -> SessionId | None:
    """A branch that reads this person's session up to a place, which never changes; `unattended` for a task.

    Its label is at least `label`, and that of all that it reads. None if there are too many branches of branches.
    """
    if await tx.fetchval("select max(depth) from past($1)", session) + 1 >= DEEPEST:
        return None
    branch = SessionId(uuid4())
    # One of which nothing would be read is left out: versions of one message are siblings.
    sql = """insert into sessions (id, principal_id, label, next_seq, parent_id, parent_seq, unattended)
             select $1, $2, $5, $4 + 1, case when parent_seq = $4 then parent_id else id end, $4, $6
             from sessions where id = $3 and principal_id = $2"""
    await tx.execute(sql, branch, principal, session, seq, label, unattended)
    # Its own entries are all that memory has to look at.
    sql = "insert into memory_progress (session_id, principal_id, seq, place) values ($1, $2, $3, 0)"
    await tx.execute(sql, branch, principal, seq)
    past = await messages.transcript(tx, branch)
    await sessions.taint(tx, branch, max((row.label for row in past), default=label))
    return branch


async def said(conn: Connection, session: SessionId, message: MessageId | None = None) -> MessageRow | None:
    """This message of a person, or their newest, if the conversation or its past has it and a turn has taken it."""
    row = await (conn.fetchrow(_NEWEST, session) if message is None else conn.fetchrow(_SAID, session, message))
    return MessageRow.of(row) if row else None


async def others(conn: Connection, session: SessionId) -> set[MessageId]:
    """What was said in the other versions of what this branch says; empty for what is no branch."""
    sql = """with behind as (
                select p.id, p.until from past($1) p where p.depth > 0
                union all
                select s.id, s.parent_seq from sessions s join past($1) p on s.parent_id = p.id
                where s.id not in (select id from past($1)))
              select m.id from behind b cross join lateral (
                select id from messages where session_id = b.id and seq > b.until order by seq desc limit $2) m
              order by m.id desc limit $2"""
    rows = await conn.fetch(sql, session, OTHERS)
    return {MessageId(row["id"]) for row in rows}


async def joined(conn: Connection, rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows; those with which a branch begins say of which session they are another version."""
    sql = "select id, parent_id, parent_seq from sessions where id = any($1) and parent_id is not null"
    found = await conn.fetch(sql, list({row.session_id for row in rows}))
    begins = {(row["id"], row["parent_seq"] + 1): SessionId(row["parent_id"]) for row in found}
    return [replace(row, version_of=begins.get((row.session_id, row.seq or 0))) for row in rows] if begins else [*rows]

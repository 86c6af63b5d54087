"""Turns: what was said in a conversation is a row of memory, with the words and the speaker of its message."""

import asyncio
from collections.abc import Sequence

from asyncpg import Record

from gateway.domain.ids import PrincipalId
from gateway.memory.lexemes import lexemes
from gateway.store.connection.pool import Connection

_BEHIND = """
with behind as materialized (
  select s.id, s.agent, s.unattended, coalesce(p.seq, 0) as seq, coalesce(p.place, 0) as place
  from sessions s left join memory_progress p on p.session_id = s.id
  where s.principal_id = $1 and s.next_seq - 1 > coalesce(p.seq, 0)
    and (not $3 or s.spoken_at > now() - interval '1 hour')
  order by s.spoken_at limit $2
)
select m.id, m.session_id, m.seq, m.label, m.origin, m.sent_at, b.agent, b.place,
       case when m.kind = 'user' or (m.kind = 'assistant' and m.final) then concat_ws(' ', m.sender, m.text) else '' end
         as text, b.unattended
from behind b cross join lateral (
  select * from messages where session_id = b.id and seq > b.seq order by seq limit $2) m
order by m.session_id, m.seq limit $2
"""


async def behind(conn: Connection) -> list[PrincipalId]:
    """Whose conversations have something that was not looked at."""
    sql = """select distinct s.principal_id from sessions s left join memory_progress p on p.session_id = s.id
             where s.next_seq - 1 > coalesce(p.seq, 0)"""
    rows = await conn.fetch(sql)
    return [row["principal_id"] for row in rows]


async def index_new(tx: Connection, principal: PrincipalId | None, limit: int) -> int:
    """Make rows of what was said and has none, in order; returns how many of the transcript, to `limit`, it looked at.

    For one principal: of the conversations of the last hour, for what is older the job `embed` does. For None: of all.
    Whoever is being indexed already is left to that.
    """
    if principal is not None:
        return await _index(tx, principal, limit, recent=True)
    return sum([await _index(tx, each, limit, recent=False) for each in await behind(tx)])


async def _index(tx: Connection, principal: PrincipalId, limit: int, *, recent: bool) -> int:
    if not await tx.fetchval("select pg_try_advisory_xact_lock(hashtextextended('memory ' || $1, 0))", str(principal)):
        return 0
    rows = await tx.fetch(_BEHIND, principal, limit, recent)
    if not rows:
        return 0
    # what ran by itself is told in a chat, and found there
    spoken = [row for row in rows if row["text"].strip() and not row["unattended"]]
    words = await asyncio.to_thread(lambda: [lexemes(row["text"]) for row in spoken])
    places = await _store(tx, principal, spoken, words)
    await _advance(tx, principal, rows, places)
    return len(rows)


async def _store(
    tx: Connection, principal: PrincipalId, spoken: Sequence[Record], words: Sequence[Sequence[str]]
) -> dict[str, int]:
    """The rows; returns the last place of each session that got some."""
    last: dict[str, int] = {}
    rows = []
    for row, found in zip(spoken, words, strict=True):
        place = last[row["session_id"]] = last.get(row["session_id"], row["place"]) + 1
        rows.append(
            (
                principal,
                row["label"],
                row["origin"],
                row["agent"],
                row["session_id"],
                row["id"],
                place,
                found,
                row["sent_at"],
            )
        )
    sql = """insert into memories (principal_id, kind, label, origin, agent, session_id, message_id, place, lexemes,
             event_at, created_at)
           values ($1, 'turn', $2, $3, $4, $5, $6, $7, array_to_tsvector($8::text[]), $9, $9) on conflict do nothing"""
    await tx.executemany(sql, rows)
    return last


async def _advance(tx: Connection, principal: PrincipalId, rows: Sequence[Record], places: dict[str, int]) -> None:
    """Note how far each session was looked at."""
    ends = {row["session_id"]: (row["seq"], places.get(row["session_id"], row["place"])) for row in rows}
    sql = """insert into memory_progress (session_id, principal_id, seq, place)
             select session, $1, seq, place from unnest($2::uuid[], $3::int[], $4::int[]) as e (session, seq, place)
             on conflict (session_id) do update set seq = excluded.seq, place = excluded.place"""
    await tx.execute(
        sql, principal, list(ends), [seq for seq, _ in ends.values()], [place for _, place in ends.values()]
    )

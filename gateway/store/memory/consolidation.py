"""Statements of the daily consolidation. Its proposals are memories that a person has not accepted yet.

New words are a memory that is forgotten from its beginning, so that nothing finds it until it is restored; that one may
replace another is noted there, as `doubted_by`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gateway.domain.ids import MemoryId, PrincipalId
from gateway.domain.memory.memories import DEFAULT_AGENT, Kind, Memory, MemoryFilter, NewMemory, content_hash
from gateway.domain.principals import Label
from gateway.memory.lexemes import lexemes
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_record, statement
from gateway.store.memory import memories, search
from gateway.store.memory.memories import by_id

EVERY = timedelta(days=1)
CHANGED, SAID, NEAR = 40, 200, 5
"""New memories and turns of a run, and memories that are near to each of the former."""
ORIGIN = "proposal"


@dataclass(frozen=True, slots=True)
class ConsolidationInput:
    """The new memories and turns of one principal, as of a moment; the next run begins after `upto`."""

    as_of: datetime
    upto: MemoryId
    memories: Sequence[Memory]
    said: Sequence[Memory]


async def due(conn: Connection) -> list[PrincipalId]:
    """Principals with new memories whose last run is a day ago; the first one is a day after their first words."""
    sql = """select principal_id from memory_stats s where consolidated_at <= now() - $1::interval and exists (
               select from memories m where m.principal_id = s.principal_id and m.id > consolidated_to
                 and (m.kind = 'memory' or (m.kind = 'turn' and m.created_at > now() - $1::interval)))"""
    return [row["principal_id"] for row in await conn.fetch(sql, EVERY)]


async def changed(conn: Connection, principal: PrincipalId, at_most: Label) -> ConsolidationInput:
    """The oldest memories that were not looked at, and what was said since."""
    sql = "select now() as as_of, coalesce(max(id), 0) as id from memories where principal_id = $1"
    newest = await fetch_record(conn, sql, principal)
    about = (at_most, DEFAULT_AGENT, EVERY)
    facts = await fetch_all(conn, Memory, statement("memory/new_memories"), principal, Kind.MEMORY, *about, CHANGED)
    said = await fetch_all(conn, Memory, statement("memory/new_memories"), principal, Kind.TURN, *about, SAID)
    upto = facts[-1].id if len(facts) == CHANGED else newest["id"]
    return ConsolidationInput(newest["as_of"], upto, facts, said)


async def near(conn: Connection, principal: PrincipalId, rows: Sequence[Memory], at_most: Label) -> list[Memory]:
    """These, and the memories most like each, in words and, where a memory has a vector, in meaning; by id."""
    model, vectors = await _vectors(conn, [row.id for row in rows])
    which = MemoryFilter(kinds=(Kind.MEMORY,), agent=DEFAULT_AGENT, at_most=at_most)
    found = {row.id: row for row in rows}
    for row in rows:
        vector = None if row.kind is Kind.TURN else vectors.get(row.id)
        hits = await search.hybrid(
            conn, principal, lexemes(row.text), which, NEAR + 1, vector=vector, model=model if vector else None
        )
        found |= {hit.memory.id: hit.memory for hit in hits.hits}
    return [found[id] for id in sorted(found)]


async def merge(
    tx: Connection, principal: PrincipalId, same: MemoryId, kept: MemoryId, label: Label, as_of: datetime
) -> bool:
    """`memories.supersede` what means the same; if both are trusted alike, with all that is known of it."""
    if not await memories.supersede(tx, principal, same, kept, label, as_of):
        return False
    await tx.execute(statement("memory/merge_memories"), kept, same)
    return True


async def propose(tx: Connection, principal: PrincipalId, new: NewMemory) -> bool:
    """Leave it to the person whether this is remembered; False if they were asked, know it or have forgotten it."""
    known = "select exists (select from memories where principal_id = $1 and content_hash = $2)"
    if await tx.fetchval(known, principal, content_hash(new.text)):
        return False
    row, _ = await memories.add(tx, principal, replace(new, origin=ORIGIN))
    await tx.execute("update memories set forgotten_at = created_at where id = $1", row.id)
    return True


async def doubt(tx: Connection, principal: PrincipalId, doubts: Mapping[MemoryId, MemoryId]) -> None:
    """Leave it to the person whether old memories are replaced by new ones; what was asked before is over."""
    sql = """update memories m set doubted_by = (select new from unnest($2::bigint[], $3::bigint[]) d (old, new)
                                                 where old = m.id)
             where principal_id = $1 and (doubted_by is not null or id = any($2))"""
    await tx.execute(sql, principal, list(doubts), list(doubts.values()))


async def done(tx: Connection, principal: PrincipalId, upto: MemoryId | None) -> None:
    """The next run is a day from now, and begins after `upto`; None: where this one did."""
    sql = """update memory_stats set consolidated_at = now(), consolidated_to = coalesce($2, consolidated_to)
             where principal_id = $1"""
    await tx.execute(sql, principal, upto)


async def proposals(conn: Connection, principal: PrincipalId) -> list[Memory]:
    """Proposals of the last week that were neither accepted nor changed since."""
    sql = """select * from remembered where principal_id = $1 and kind = 'memory' and origin = $2
               and forgotten_at = created_at and created_at > now() - interval '7 days' order by id"""
    return await fetch_all(conn, Memory, sql, principal, ORIGIN)


async def doubts(conn: Connection, principal: PrincipalId) -> list[tuple[Memory, Memory]]:
    """Each memory that is in doubt, with the newer one that may replace it."""
    sql = """select o.id as old, n.id as new from memories o join memories n on n.id = o.doubted_by
             where o.principal_id = $1 and o.doubted_by is not null and n.principal_id = $1
               and coalesce(o.superseded_at, o.forgotten_at, n.superseded_at, n.forgotten_at) is null order by o.id"""
    rows = await conn.fetch(sql, principal)
    found = await by_id(conn, [id for row in rows for id in row.values()])
    return [(found[row["old"]], found[row["new"]]) for row in rows]


async def _vectors(conn: Connection, ids: Sequence[MemoryId]) -> tuple[str | None, dict[int, list[float]]]:
    """The model that is searched by, and its vectors of these rows."""
    if await conn.fetchval("select to_regclass('memory_vectors') is null"):
        return None, {}
    sql = """select memory_id, name, embedding::text as vector from memory_vectors v
             join memory_models m on m.id = v.model and m.current where memory_id = any($1)"""
    rows = await conn.fetch(sql, list(ids))
    return (rows[0]["name"] if rows else None), {row["memory_id"]: json.loads(row["vector"]) for row in rows}

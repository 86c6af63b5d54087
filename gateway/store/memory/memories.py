"""Memories and summaries: stored once, replaced rather than overwritten, each with where it was learned."""

from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime

from asyncpg import Record

from gateway.domain.ids import MemoryId, MessageId, PrincipalId, SessionId
from gateway.domain.memory.memories import (
    Category,
    Kind,
    Memory,
    MemoryFilter,
    MemoryRefused,
    NewMemory,
    content_hash,
)
from gateway.domain.principals import Label
from gateway.domain.text.marks import WITHDRAWN
from gateway.domain.text.texts import storable
from gateway.memory.lexemes import lexemes
from gateway.memory.wording import FORGOTTEN
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, fetch_value, statement

FILTER = """row($2::text[], $3::text[], $4::text[], $5::uuid, $6::text, $7::timestamptz, $8::timestamptz, $9::smallint,
  $10::boolean, $11::boolean, $12::double precision)::memory_filter"""
"""The arguments of `filtering` as a `memory_filter`."""

_LISTED = """
with page as (
  select id from memories m where principal_id = $1 and memory_matches(m, {which})
  order by {order} limit $13 offset $14)
select * from remembered where id in (select id from page) order by {order}"""
_ONE = "select * from remembered where principal_id = $1 and id = $2"
_NEWEST = _LISTED.format(which=FILTER, order="id desc")
_WEIGHTIEST = _LISTED.format(which=FILTER, order="pinned desc, importance desc, id desc")


@dataclass(frozen=True, slots=True)
class MemorySource:
    """A message that something was learned from."""

    message_id: MessageId
    session_id: SessionId
    kind: str
    sender: str
    text: str
    sent_at: datetime
    label: Label


async def add(tx: Connection, principal: PrincipalId, new: NewMemory) -> tuple[Memory, bool]:
    """Remember, and say whether it is new; what is known already is seen once more, and keeps its words.

    What is known, but trusted less or no longer valid, is replaced. What is trusted more stays as it is: the same words
    of somebody else neither count, nor are they where it was learned, nor does it replace anything on their account.
    """
    text = storable(new.text)
    while (id := await _inserted(tx, principal, new, text)) is None:
        sql = """select id, label < $4 as trusted_more,
                        label = $4 and (valid_to is null or valid_to > now()) as stands from memories
                 where principal_id = $1 and agent = $2 and content_hash = $3
                   and superseded_at is null and forgotten_at is null for update"""
        known = await tx.fetchrow(sql, principal, new.agent, content_hash(text), new.label)
        if known is None:  # replaced or forgotten in this moment
            continue
        if known["trusted_more"]:
            return await fetch_one(tx, Memory, _ONE, principal, known["id"]), False
        if known["stands"]:
            seen = "update memories set seen_count = seen_count + 1, updated_at = now() where id = $1"
            await tx.execute(seen, known["id"])
            return await _with_links(tx, principal, known["id"], new), False
        await tx.execute("update memories set superseded_at = now() where id = $1", known["id"])
        added, _ = await add(tx, principal, new)
        await tx.execute("update memories set superseded_by = $2 where id = $1", known["id"], added.id)
        return added, True
    return await _with_links(tx, principal, id, new), True


async def was_replaced(conn: Connection, principal: PrincipalId, new: NewMemory, at: datetime) -> bool:
    """Whether a memory of these words was replaced at this time."""
    sql = """select exists (select from memories where principal_id = $1 and agent = $2 and content_hash = $3
                              and superseded_at = $4)"""
    return bool(await conn.fetchval(sql, principal, new.agent, content_hash(storable(new.text)), at))


async def end(tx: Connection, memory: MemoryId, valid_to: datetime | None, superseded_at: datetime | None) -> None:
    """Set when a memory stopped being true, or was replaced."""
    sql = "update memories set valid_to = $2, superseded_at = $3 where id = $1"
    await tx.execute(sql, memory, valid_to, superseded_at)


async def learn(tx: Connection, principal: PrincipalId, new: NewMemory) -> tuple[Memory, bool] | None:
    """`add` what no person asked to remember; None if a person has forgotten it."""
    sql = """select exists (select from memories where principal_id = $1 and agent = $2 and content_hash = $3
                              and kind = 'memory' and forgotten_at > created_at)"""
    forgotten = await tx.fetchval(sql, principal, new.agent, content_hash(storable(new.text)))
    return None if forgotten else await add(tx, principal, new)


MAX_FORGOTTEN = 1_000
"""Forgotten memories that summaries and what is said later are checked for, the newest."""


async def forgotten(
    conn: Connection, principal: PrincipalId, messages: Sequence[MessageId]
) -> tuple[set[MessageId], dict[frozenset[str], datetime]]:
    """Those of the messages that their person has forgotten, and the words of forgotten memories, since when."""
    sql = "select message_id from memories where message_id = any($1) and forgotten_at is not null"
    hidden = {MessageId(row["message_id"]) for row in await conn.fetch(sql, list(messages))}
    return hidden, await forgotten_facts(conn, principal)


async def forgotten_facts(conn: Connection, principal: PrincipalId) -> dict[frozenset[str], datetime]:
    """The words of each forgotten memory, and since when it is."""
    sql = """select tsvector_to_array(lexemes) as words, forgotten_at from memories
             where principal_id = $1 and kind = 'memory' and forgotten_at > created_at and lexemes is not null
             order by forgotten_at desc limit $2"""
    rows = await conn.fetch(sql, principal, MAX_FORGOTTEN)
    return {frozenset(row["words"]): row["forgotten_at"] for row in rows}


async def replaced_by(conn: Connection, principal: PrincipalId, memory: MemoryId) -> list[Memory]:
    """The memories that it replaced, and those that these had replaced, unless they are forgotten."""
    sql = """with recursive old as (
               select id from memories where principal_id = $1 and superseded_by = $2
               union select m.id from memories m join old on m.superseded_by = old.id where m.principal_id = $1)
             select r.* from remembered r join old using (id) where r.forgotten_at is null order by r.id"""
    return await fetch_all(conn, Memory, sql, principal, memory)


async def get(conn: Connection, principal: PrincipalId, memory: MemoryId) -> Memory | None:
    """One row of this principal's, of any kind, in force or not."""
    return await fetch_first(conn, Memory, _ONE, principal, memory)


async def by_id(conn: Connection, ids: Sequence[MemoryId]) -> dict[MemoryId, Memory]:
    """These rows, of any kind, in force or not."""
    rows = await fetch_all(conn, Memory, "select * from remembered where id = any($1)", ids)
    return {row.id: row for row in rows}


async def listed(
    conn: Connection,
    principal: PrincipalId,
    which: MemoryFilter,
    limit: int,
    offset: int = 0,
    *,
    weightiest: bool = False,
) -> list[Memory]:
    """Current memories, the newest first; with `weightiest` pinned ones first, then by importance."""
    sql = _WEIGHTIEST if weightiest else _NEWEST
    return await fetch_all(conn, Memory, sql, *filtering(principal, which), limit, offset)


async def edit(
    tx: Connection,
    principal: PrincipalId,
    memory: MemoryId,
    *,
    text: str | None = None,
    category: Category | None = None,
    importance: float | None = None,
    tags: Sequence[str] | None = None,
    pinned: bool | None = None,
) -> Memory | None:
    """Change what is given of a memory or a summary; None if there is none such.

    Raises `MemoryRefused` if another in force has this text.
    """
    if text is not None and not await _reword(tx, principal, memory, storable(text)):
        return None
    stored = None if tags is None else [storable(tag) for tag in tags]
    await tx.execute(statement("memory/edit_memory"), principal, memory, category, importance, stored, pinned)
    return await get(tx, principal, memory)


async def supersede(
    tx: Connection,
    principal: PrincipalId,
    old: MemoryId,
    new: MemoryId,
    label: Label,
    as_of: datetime | None = None,
) -> bool:
    """Say that one memory replaces another, which stays behind it; not one that is trusted more, nor in a circle.

    `label` is that of the person or run that says so, which may be trusted less than the new one; it saw both `as_of`.
    """
    return bool(await tx.fetchval(statement("memory/supersede"), principal, old, new, label, as_of))


async def forget(tx: Connection, principal: PrincipalId, memory: MemoryId) -> bool:
    """Leave a row out of everything from now on; `restore` undoes it."""
    sql = """update memories set forgotten_at = now(), updated_at = now()
             where principal_id = $1 and id = $2 and forgotten_at is null returning true"""
    return bool(await tx.fetchval(sql, principal, memory))


async def restore(tx: Connection, principal: PrincipalId, memory: MemoryId) -> bool:
    """Take `forget` back, for a memory also of the rows that were forgotten in the same transaction, but proposals.

    Raises `MemoryRefused` if the same was remembered since, by somebody trusted as much.
    """
    sql = """select agent, content_hash, label, kind, forgotten_at from memories
             where principal_id = $1 and id = $2 and forgotten_at is not null for update"""
    row = await tx.fetchrow(sql, principal, memory)
    if row is None:
        return False
    await _displace(tx, principal, memory, row["content_hash"], row)
    sql = """update memories m set forgotten_at = null, updated_at = now()
             where principal_id = $1 and (id = $2 or ($3 and forgotten_at = $4
               and (kind <> 'memory' or forgotten_at > created_at) and not exists (
               select from memories o where o.principal_id = m.principal_id and o.agent = m.agent
                 and o.content_hash = m.content_hash and o.superseded_at is null and o.forgotten_at is null)))"""
    await tx.execute(sql, principal, memory, row["kind"] == Kind.MEMORY, row["forgotten_at"])
    return True


async def sources(conn: Connection, principal: PrincipalId, memory: MemoryId) -> list[MemorySource]:
    """The messages it was learned from, or is; the facts of before know the stretch of their session."""
    marks = (WITHDRAWN["edited"], WITHDRAWN["deleted"], FORGOTTEN)
    return await fetch_all(conn, MemorySource, statement("memory/memory_sources"), principal, memory, *marks)


async def learned(conn: Connection, principal: PrincipalId, memory: Memory) -> tuple[Memory, list[MemorySource]]:
    """A memory with its sources, trusted no more than the least trusted of them: for all that show both."""
    found = await sources(conn, principal, memory.id)
    return replace(memory, label=max([memory.label, *(source.label for source in found)])), found


def filtering(principal: PrincipalId, which: MemoryFilter) -> tuple[object, ...]:
    """The parameters $1 to $12 of a filter: its fields, in their order."""
    return (principal, *astuple(which))


async def _inserted(tx: Connection, principal: PrincipalId, new: NewMemory, text: str) -> MemoryId | None:
    fact = (new.category, content_hash(text)) if new.kind is Kind.MEMORY else (None, None)
    how = (new.importance, [storable(tag) for tag in new.tags], new.pinned, new.language)
    whence = (new.label, new.origin, new.agent, new.session, new.event_at, new.created_at)
    given = (principal, new.kind, text, lexemes(text), *fact, *how, *whence)
    return await fetch_value(tx, MemoryId, statement("memory/insert_memory"), *given)


async def _with_links(tx: Connection, principal: PrincipalId, memory: MemoryId, new: NewMemory) -> Memory:
    sql = """insert into memory_sources (memory_id, message_id, principal_id)
             select $1, id, $2 from messages where id = any($3) and principal_id = $2 on conflict do nothing"""
    await tx.execute(sql, memory, principal, list(new.sources))
    if new.supersedes is not None:
        await supersede(tx, principal, new.supersedes, memory, new.label)
    return await fetch_one(tx, Memory, _ONE, principal, memory)


async def _reword(tx: Connection, principal: PrincipalId, memory: MemoryId, text: str) -> bool:
    """Its words are counted anew, and so is its vector made."""
    sql = """select kind, agent, label from memories
             where principal_id = $1 and id = $2 and kind in ('memory', 'summary') for update"""
    row = await tx.fetchrow(sql, principal, memory)
    if row is None:
        return False
    hash_ = content_hash(text) if row["kind"] == Kind.MEMORY else None
    await _displace(tx, principal, memory, hash_, row)
    sql = """update memories set text = $2, content_hash = $3, lexemes = array_to_tsvector($4::text[]), counted = false
             where id = $1"""
    await tx.execute(sql, memory, text, hash_, lexemes(text))
    return True


async def _displace(tx: Connection, principal: PrincipalId, memory: MemoryId, hash_: bytes | None, row: Record) -> None:
    """Put it in the place of the memory that says the same; raises `MemoryRefused` if that is trusted as much."""
    sql = """select id, label > $5 as less_trusted from memories
             where principal_id = $1 and agent = $2 and content_hash = $3 and id <> $4
               and superseded_at is null and forgotten_at is null for update"""
    other = await tx.fetchrow(sql, principal, row["agent"], hash_, memory, row["label"])
    if other is None:
        return
    if not other["less_trusted"]:
        raise MemoryRefused(f"Memory {other['id']} says the same already; edit or forget that one.")
    sql = "update memories set superseded_at = now(), superseded_by = $2, updated_at = now() where id = $1"
    await tx.execute(sql, other["id"], memory)

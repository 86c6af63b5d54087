"""The index of memory: rows of turns and of files' passages, and the number of rows with each word.

A row says itself whether its words are counted, and what is no longer counted waits in `memory_gone`: each
transaction counts what it marks, so nothing counts twice. One writer at a time: the job `embed`."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from asyncpg import Record

from gateway.domain.ids import MessageId, PrincipalId
from gateway.domain.memory.memories import Kind, content_hash
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.memory.lexemes import Passage, lexemes
from gateway.memory.wording import states
from gateway.store.connection.pool import Connection, lock_name
from gateway.store.connection.rows import columns, fetch_one, statement
from gateway.store.memory import memories


async def indexed_files(conn: Connection, principal: PrincipalId) -> dict[str, str]:
    """The versions, by path, of the files that were looked at."""
    rows = await conn.fetch("select path, version from memory_files where principal_id = $1", principal)
    return {row["path"]: row["version"] for row in rows}


async def replace_passages(
    tx: Connection, principal: PrincipalId, path: str, version: str, label: Label, found: Sequence[Passage]
) -> None:
    """Make these the passages of a file, trusted as it is."""
    await remove_passages(tx, principal, path)
    sql = """insert into memory_files (principal_id, path, version) values ($1, $2, $3)
             on conflict (principal_id, path) do update set version = excluded.version"""
    await tx.execute(sql, principal, path, version)
    sql = """insert into memories (principal_id, kind, text, label, origin, path, page, place, lexemes)
             values ($1, 'chunk', $2, $3, 'file', $4, $5, $6, array_to_tsvector($7::text[]))"""
    rows = (
        (principal, storable(passage.text), label, path, passage.page, place, lexemes(passage.text))
        for place, passage in enumerate(found, 1)
    )
    await tx.executemany(sql, rows)


async def remove_passages(tx: Connection, principal: PrincipalId, path: str) -> None:
    """The file is gone."""
    await tx.execute("delete from memories where principal_id = $1 and kind = 'chunk' and path = $2", principal, path)
    await tx.execute("delete from memory_files where principal_id = $1 and path = $2", principal, path)


async def unindexed(conn: Connection) -> list[PrincipalId]:
    """Principals whose conversations have messages that were not indexed."""
    sql = """select distinct s.principal_id from sessions s left join memory_progress p on p.session_id = s.id
             where s.next_seq - 1 > coalesce(p.seq, 0) and s.deleted_at is null and s.id not in
               (select session_id from addresses where channel = 'web' and starts_with(thread, 'temporary-'))"""
    return [row["principal_id"] for row in await conn.fetch(sql)]


NEWEST = 100
"""The newest messages, which are indexed before a search, and before something is forgotten."""


async def index_turns(tx: Connection, principal: PrincipalId | None, limit: int) -> int:
    """Make rows of what was said and has none, in order; returns how many of the transcript, to `limit`, it looked at.

    For one principal: of the conversations of the last hour, for what is older the job `embed` does. For None: of all.
    A principal that another transaction is indexing is skipped.
    """
    if principal is not None:
        return await _index(tx, principal, limit, recent=True)
    return sum([await _index(tx, each, limit, recent=False) for each in await unindexed(tx)])


async def _index(tx: Connection, principal: PrincipalId, limit: int, *, recent: bool) -> int:
    if not await tx.fetchval("select pg_try_advisory_xact_lock(hashtextextended('memory ' || $1, 0))", str(principal)):
        return 0
    rows = await tx.fetch(statement("memory/unindexed_messages"), principal, limit, recent)
    if not rows:
        return 0
    # what ran by itself is told in a chat, and found there
    spoken = [row for row in rows if row["text"].strip() and not row["unattended"]]
    words = await asyncio.to_thread(lambda: [lexemes(row["text"]) for row in spoken])
    await _advance(tx, principal, rows, await _store_turns(tx, principal, spoken, words))
    return len(rows)


async def _store_turns(
    tx: Connection, principal: PrincipalId, spoken: Sequence[Record], words: Sequence[Sequence[str]]
) -> dict[str, int]:
    """The rows; returns the last place of each session that got some.

    What was forgotten stays so if the agent repeats it later.
    """
    last: dict[str, int] = {}
    rows = []
    forgotten = await memories.forgotten_facts(tx, principal) if spoken else {}
    for row, found in zip(spoken, words, strict=True):
        place = last[row["session_id"]] = last.get(row["session_id"], row["place"]) + 1
        said = (row["label"], row["origin"], row["agent"], row["session_id"], row["id"])
        since = datetime.min.replace(tzinfo=UTC) if row["kind"] == "assistant" else row["sent_at"]
        told = set(found)
        gone = (at for fact, at in forgotten.items() if at >= since and states(told, fact))
        rows.append((principal, *said, place, found, row["sent_at"], next(gone, None)))
    await tx.executemany(statement("memory/store_turns"), rows)
    return last


async def _advance(tx: Connection, principal: PrincipalId, rows: Sequence[Record], places: dict[str, int]) -> None:
    """Note how far each session was looked at."""
    ends = {row["session_id"]: (row["seq"], places.get(row["session_id"], row["place"])) for row in rows}
    told = columns([(session, *end) for session, end in ends.items()], 3)
    sql = """insert into memory_progress (session_id, principal_id, seq, place)
             select session, $1, seq, place from unnest($2::uuid[], $3::int[], $4::int[]) as e (session, seq, place)
             on conflict (session_id) do update set seq = excluded.seq, place = excluded.place"""
    await tx.execute(sql, principal, *told)


async def count_words(tx: Connection, limit: int) -> int:
    """Count rows that are not, and take off what is gone, at most so many of each; returns how many it was."""
    await lock_name(tx, "memory_df")
    await _give_words(tx, limit)
    changes = ("memory/discount_words", "memory/count_words")
    return sum([int(await tx.fetchval(statement(name), limit)) for name in changes])


async def _give_words(tx: Connection, limit: int) -> None:
    """To memories older than these; two that say the same are one from now on."""
    sql = """select id, principal_id, kind, agent, text from memories
             where not counted and lexemes is null order by id limit $1 for update"""
    rows = await tx.fetch(sql, limit)
    for row in rows:
        hashed = content_hash(row["text"]) if row["kind"] == Kind.MEMORY else None
        given = (row["id"], lexemes(row["text"]), hashed, row["principal_id"], row["agent"])
        await tx.execute(statement("memory/give_words"), *given)


@dataclass(frozen=True, slots=True)
class PendingIndexing:
    """The newest message of all, and whether rows wait to be counted, or for their vectors."""

    newest: MessageId | None
    uncounted: bool
    unembedded: bool


async def pending(conn: Connection) -> PendingIndexing:
    """A few entries of indexes, however much there is."""
    sql = """select (select max(id) from messages) as newest,
                    exists (select from memories where not counted) or exists (select from memory_gone) as uncounted,
                    exists (select from memory_unembedded) as unembedded"""
    return await fetch_one(conn, PendingIndexing, sql)

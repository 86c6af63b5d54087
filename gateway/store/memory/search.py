"""Finds rows of memory by words and by vectors, and those that a session begins with.

The ranking itself is in SQL (`hybrid_search`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from operator import itemgetter
from typing import TypeVar

import asyncpg

from gateway.domain.errors import SupaclawError
from gateway.domain.ids import MemoryId, MessageId, PrincipalId, SessionId
from gateway.domain.memory.memories import DEFAULT_AGENT, Kind, Memory, MemoryFilter, MemoryHit
from gateway.domain.principals import Label
from gateway.memory.wording import LastSession
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_record, read_row
from gateway.store.memory.memories import FILTER, filtering

ENOUGH = 100
"""Memories of each sort that a session's beginning is chosen of."""

_LAST_CHAT = "select * from bootstrap_last($1, $2, $3, $4, $5, $6)"
_CANDIDATES = """
select * from remembered where id in (select bootstrap_rows($1, $2, $3, $4, $5, $6)) order by id"""
_VERSION = """
select bootstrap_version($1, $2, $3, $4, $5, $6, $7) as version, array(select other_versions($7, $8)) as others"""

Found = TypeVar("Found")

MAX_HITS = 200
POOL = 100
"""Rows that a prior orders anew."""
Prior = Callable[[MemoryHit], float | None]
"""Added to the score of a row; None leaves it out."""
_WEAK_SCORE, _WEAK_WORDS = 6.5, 0.34
_WEAK_WORDS_ALONE = 0.08
_HYBRID = """
select found.score, found.words, found.cosine, found.shown, r.*
from hybrid_search($1, $13, $14, $15, {}, $16, 0, 0) with ordinality found (id, score, words, cosine, shown, place)
left join remembered r on r.id = found.id and found.shown order by found.place"""


class WrongDimension(SupaclawError):
    """A vector that is no neighbour of those stored."""

    def __init__(self, given: int, model: str, stored: int) -> None:
        super().__init__(
            f"The query's vector has {given} dimensions, those of {model} have {stored}; "
            "ask the model that made the index, or let it be made anew"
        )


@dataclass(frozen=True, slots=True)
class Ranked:
    """A search's hits, best first; `left_out` rows are as good, but trusted too little to be shown."""

    hits: tuple[MemoryHit, ...]
    left_out: int
    weak: bool = True
    """Whether no row has much of the query's words or stands out of the store: of few questions with an answer."""


def _weak(hits: Sequence[MemoryHit]) -> bool:
    if any(hit.cosine is not None for hit in hits):
        return all(hit.score < _WEAK_SCORE and hit.words < _WEAK_WORDS for hit in hits)
    return all(hit.words < _WEAK_WORDS_ALONE for hit in hits)


async def hybrid(
    conn: Connection,
    principal: PrincipalId,
    words: Sequence[str],
    which: MemoryFilter,
    k: int,
    *,
    vector: Sequence[float] | None = None,
    model: str | None = None,
    prior: Prior | None = None,
) -> Ranked:
    """The `k` best rows for the lexemes of a query and its vector by `model`, either of which may be missing.

    Nothing matching the filter is lost: a search by vector returns `k` rows if as many match. Raises `WrongDimension`.
    """
    if k < 1 or not (words or vector):
        return Ranked((), 0)
    number = None if vector is None or model is None else await _model(conn, model, len(vector))
    literal = None if number is None or vector is None else _literal(vector)
    most = min(k if prior is None else max(k, POOL), MAX_HITS)
    values = (*filtering(principal, _indexed(which)), list(words), literal, number, most)
    rows = await conn.fetch(_HYBRID.format(FILTER), *values)
    found = (row for row in rows if row["id"] is not None)
    hits = [MemoryHit(read_row(Memory, row), row["score"], row["words"], row["cosine"]) for row in found]
    lifts = [(0.0 if prior is None else prior(hit), hit) for hit in hits]
    scored = [(hit.score + lift, hit) for lift, hit in lifts if lift is not None]
    best = sorted(scored, key=itemgetter(0), reverse=True)[:k]
    as_good = best[-1][0] if len(best) == k else float("-inf")
    left_out = sum(not row["shown"] and row["score"] >= as_good for row in rows)
    ranked = tuple(replace(hit, score=score) for score, hit in best)
    return Ranked(ranked, min(k, left_out), _weak([hit for _, hit in best]))


_REPLACED = """
select n.replaces, r.* from memory_replacements($2) n join remembered r using (id)
where r.principal_id = $1 and r.forgotten_at is null and r.label <= $3"""


async def replaced(
    conn: Connection, principal: PrincipalId, rows: Sequence[MemoryId], at_most: Label
) -> dict[MemoryId, Memory]:
    """The memory that holds now in place of a row, or of one learned from it; only for rows that are out of date."""
    found = await conn.fetch(_REPLACED, principal, list(rows), at_most) if rows else []
    return {MemoryId(row["replaces"]): read_row(Memory, row) for row in found}


async def open_messages(conn: Connection, session: SessionId) -> dict[MessageId, str]:
    """The messages of a session that wait for an answer, by their ids."""
    sql = """select id, text from messages
             where session_id = $1 and kind = 'user' and answered_by is null and closed_at is null"""
    return {MessageId(row["id"]): row["text"] for row in await conn.fetch(sql, session)}


async def _model(conn: Connection, name: str, dimensions: int) -> int | None:
    """The number under which the vectors of a model are stored; None if none are."""
    sql = """select id, dimensions from memory_models
             where name = $1 and current and to_regclass('memory_vectors') is not null"""
    row = await conn.fetchrow(sql, name)
    if row is None:
        return None
    if row["dimensions"] != dimensions:
        raise WrongDimension(dimensions, name, row["dimensions"])
    return int(row["id"])


def _literal(vector: Sequence[float]) -> str:
    return f"[{','.join(f'{value:.7g}' for value in vector)}]"


def _indexed(which: MemoryFilter) -> MemoryFilter:
    """With the kinds that the rest implies, for an index serves them."""
    if which.kinds:
        return which
    if which.categories:
        return replace(which, kinds=(Kind.MEMORY,))
    return replace(which, kinds=(Kind.MEMORY, Kind.SUMMARY)) if which.tags or which.pinned else which


RECALL_TIMEOUT_MS = 20
"""Milliseconds that a turn waits at most for rows found by words, before it continues without them."""
BLOCK_TIMEOUT_MS = 250
"""The same for rows found by words and meaning, before it looks by words alone."""

_RECALLED = """
select r.* from memory_recalled($1, $2, $3, $4, $5, $6) found join remembered r using (id)
order by found.share desc, id desc"""


async def in_time(conn: Connection, milliseconds: int, work: Callable[[], Awaitable[Found]]) -> Found | None:
    """The result of some queries on this connection; None if the first of them to take longer is cancelled for it."""
    begin, end = ("savepoint recalled", "rollback to recalled") if conn.is_in_transaction() else ("begin", "rollback")
    await conn.execute(f"{begin}; set local statement_timeout to {milliseconds}")  # one round trip for both
    try:
        return await work()
    except asyncpg.QueryCanceledError:
        return None
    finally:
        await conn.execute(end)


async def recall(
    conn: Connection, principal: PrincipalId, words: Sequence[str], at_most: Label, k: int, least: float = 0.0
) -> list[Memory]:
    """The `k` rows with the greatest share of these lexemes, those with less than `least` left out.

    Looked at are at most 1,000 rows, of the rarest words. None are found if it takes too long.
    """
    within = timedelta(milliseconds=RECALL_TIMEOUT_MS)
    find = partial(fetch_all, conn, Memory, _RECALLED, principal, list(words), at_most, k, least, within)
    if conn.is_in_transaction():  # which a cancelled statement would end
        return await in_time(conn, RECALL_TIMEOUT_MS, find) or []
    # The function looks at the clock itself, between two rows.
    with suppress(TimeoutError):
        async with asyncio.timeout((RECALL_TIMEOUT_MS + BLOCK_TIMEOUT_MS) / 1000):
            return await find()
    return []


async def last_chat(
    conn: Connection,
    principal: PrincipalId,
    session: SessionId | None,
    as_of: datetime,
    at_most: Label,
    agent: str = DEFAULT_AGENT,
) -> LastSession | None:
    """The newest that had ended by then, but this session, with its summary of then or its last three messages."""
    return await fetch_first(conn, LastSession, _LAST_CHAT, principal, as_of, at_most, agent, ENOUGH, session)


async def bootstrap_candidates(
    conn: Connection,
    principal: PrincipalId,
    as_of: datetime,
    tags: Collection[str],
    at_most: Label,
    agent: str = DEFAULT_AGENT,
) -> list[Memory]:
    """The important, the new, those that are pinned or preferences, and those with one of these tags or categories."""
    return await fetch_all(conn, Memory, _CANDIDATES, principal, as_of, at_most, agent, ENOUGH, _further(tags))


MAX_OTHER_VERSIONS = 1_000
"""The newest messages of other versions that are compared."""


async def bootstrap_version(
    conn: Connection,
    principal: PrincipalId,
    session: SessionId | None,
    as_of: datetime,
    tags: Collection[str],
    at_most: Label,
) -> tuple[str, frozenset[MessageId]]:
    """A digest of both, which differs once any of their rows was changed, forgotten or deleted.

    With it, the other versions of the messages of the session, if that is a branch.
    """
    asked = (principal, as_of, at_most, DEFAULT_AGENT, ENOUGH, _further(tags), session, MAX_OTHER_VERSIONS)
    row = await fetch_record(conn, _VERSION, *asked)
    return row["version"], frozenset(map(MessageId, row["others"]))


def _further(tags: Collection[str]) -> list[str]:
    """Those that are not looked for anyway."""
    return [tag for tag in tags if tag not in ("core", "preference")]

"""`python -m benchmarks.memory [--rows 10000 100000 1000000]`: searches of memory in stores of made-up rows.

One owner has nearly all rows: sessions of ten turns, with one memory each; a member has a hundred. Words follow Zipf's
law; vectors lie around two thousand topics. Everything runs on an embedded Postgres of its own.
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from benchmarks.processes import cpu_seconds
from benchmarks.statistics import p95
from gateway.app.temporary import temporary_database
from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.memory import Filter, Kind
from gateway.domain.principals import Label, Role
from gateway.store.memory import frequencies, recalling, search, vectors
from gateway.store.people import principals
from gateway.store.pool import Connection, Database

Search = Callable[[list[str], list[float]], Awaitable[Sequence[object]]]
"""By words and a vector; what is found."""

SIZES = (10_000, 100_000)
QUERIES = 60
DIMENSIONS, TOPICS, VOCABULARY, WORDS = 384, 2_000, 50_000, 14
MEMBERS_ROWS = 100
BATCH = 10_000
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
NAME = "made-up"

_SESSIONS = """
insert into sessions (id, principal_id, next_seq) select md5('s' || n)::uuid, $1, 11 from generate_series($2::int, $3) n
"""
_MESSAGES = """
insert into messages (id, session_id, principal_id, seq, kind, text, label, origin, sent_at)
overriding system value
select n, md5('s' || (n - 1) / 10)::uuid, $1, (n - 1) % 10 + 1, case n % 2 when 1 then 'user' else 'assistant' end,
       w, 0, 'bench', $4::timestamptz + n * interval '10 minutes'
from unnest($2::int[], $3::text[]) as g (n, w)
"""
_ROWS = """
insert into memories (principal_id, kind, label, origin, session_id, message_id, place, text, category, tags, lexemes,
                      created_at)
select $1, case when m then 'memory' else 'turn' end, 0, 'bench', md5('s' || (n - 1) / 10)::uuid,
       case when not m then n end,
       case when not m then (n - 1) % 10 + 1 end, case when m then w end, case when m then 'fact' end,
       case when m and n % 1000 = 1 then '{rare}'::text[] else '{}' end,
       array_to_tsvector(string_to_array(w, ' ')), $4::timestamptz + n * interval '10 minutes'
from unnest($2::int[], $3::text[]) as g (n, w), unnest(case n % 10 when 1 then '{f,t}'::bool[] else '{f}'::bool[] end) m
"""


@dataclass(frozen=True, slots=True)
class Timed:
    """One kind of search: wall milliseconds, and what the database computed for one."""

    what: str
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    rows: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A store of one size. `recall` is that of the index against exact distances, of the 100 nearest."""

    rows: int
    inserted_per_s: float
    counted_per_s: float
    index_s: float
    recall: float
    searches: list[Timed]


class World:
    """What is said in it: the words and the vector of a row, by its number."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(7)
        weights = 1 / np.arange(1, VOCABULARY + 1)
        self._sums = np.cumsum(weights / weights.sum())
        self._topics = self._random.normal(size=(TOPICS, DIMENSIONS)).astype(np.float32)

    def words(self, count: int) -> list[str]:
        """Texts of so many rows, as lexemes."""
        drawn = np.searchsorted(self._sums, self._random.random((count, WORDS)))
        return [" ".join(f"w{number}" for number in row) for row in drawn]

    def vectors(self, count: int) -> "NDArray[np.float32]":
        """Unit vectors of so many rows, each near to one topic."""
        topics = self._topics[self._random.integers(TOPICS, size=count)]
        found: NDArray[np.float32] = topics + self._random.normal(size=(count, DIMENSIONS)).astype(np.float32)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return found


async def measure(rows: int) -> Measured:
    """Fill a store and search it."""
    world = World()
    async with temporary_database("bench") as database:
        async with database.transaction() as tx:
            owner = await principals.add(tx, Role.OWNER, "Ada", [])
            member = await principals.add(tx, Role.MEMBER, "Bo", [])
        began = perf_counter()
        for first in range(1, rows, BATCH):
            await _fill(database, world, owner, first, min(BATCH, rows - first + 1))
        await _fill(database, world, member, rows + 11, MEMBERS_ROWS)
        inserted = perf_counter()
        while await database.run(lambda tx: frequencies.count(tx, BATCH)):
            pass
        counted = perf_counter()
        model = await _embed(database, world)
        embedded = perf_counter()
        await database.run(lambda tx: vectors.index(tx, model))
        indexed = perf_counter()
        async with database.connection() as conn:
            await conn.execute("analyze")
            recall = await _recall(conn, world, owner, model)
            searches = [timed async for timed in _searches(conn, world, owner, member, rows)]
    total = rows * 1.1
    return Measured(
        rows, total / (inserted - began), total / (counted - inserted), indexed - embedded, recall, searches
    )


async def _fill(database: Database, world: World, owner: PrincipalId, first: int, count: int) -> None:
    numbers, words = list(range(first, first + count)), world.words(count)
    async with database.transaction() as tx:
        await tx.execute(_SESSIONS, owner, (first - 1) // 10, (first + count - 2) // 10)
        await tx.execute(_MESSAGES, owner, numbers, words, BEGIN, timeout=600)
        await tx.execute(_ROWS, owner, numbers, words, BEGIN, timeout=600)


async def _embed(database: Database, world: World) -> vectors.Model:
    model = await database.run(lambda tx: vectors.want(tx, NAME, DIMENSIONS))
    while True:
        async with database.transaction() as tx:
            lacking = await vectors.lacking(tx, BATCH)
            if not lacking:
                return model
            await vectors.put(tx, model, lacking, world.vectors(len(lacking)).tolist())


async def _recall(conn: Connection, world: World, owner: PrincipalId, model: vectors.Model) -> float:
    """Of the index as `memory_nearest` uses it."""
    nearest = """select memory_nearest($1, $2::smallint, $3,
                   row('{}', '{}', '{}', null, null, null, null, 2, null, false)::memory_filter, 100, $4)"""
    shares = []
    for vector in world.vectors(QUERIES):
        literal = f"[{','.join(map(str, vector))}]"
        exact, found = [await conn.fetchval(nearest, owner, model.id, literal, how) for how in (True, False)]
        shares.append(len(set(exact) & set(found)) / len(exact))
    return sum(shares) / len(shares)


async def _searches(
    conn: Connection, world: World, owner: PrincipalId, member: PrincipalId, rows: int
) -> AsyncIterator[Timed]:
    pid = await conn.fetchval("select pg_backend_pid()")
    session = SessionId(await conn.fetchval("select session_id from memories where principal_id = $1 limit 1", owner))
    middle = BEGIN + timedelta(minutes=5 * rows)
    anything = Filter()
    filters = {
        "": anything,
        ", memories only": replace(anything, kinds=(Kind.MEMORY,)),
        ", one tag": replace(anything, tags=("rare",)),
        ", one session": replace(anything, session=session),
        ", one week": replace(anything, since=middle, until=middle + timedelta(days=7)),
    }

    async def timed(what: str, search_once: Search) -> Timed:
        taken, found = [], 0
        asked = list(zip(world.words(QUERIES + 5), world.vectors(QUERIES + 5).tolist(), strict=True))
        for words, vector in asked[:5]:
            await search_once(words.split()[:8], vector)
        cpu = cpu_seconds(pid)
        for words, vector in asked[5:]:
            began = perf_counter()
            found += len(await search_once(words.split()[:8], vector))
            taken.append(1000 * (perf_counter() - began))
        used = 1000 * (cpu_seconds(pid) - cpu) / QUERIES
        return Timed(what, median(taken), p95(taken), used, found / QUERIES)

    def by(which: Filter, who: PrincipalId, *, use_words: bool, use_vector: bool) -> Search:
        async def once(words: list[str], vector: list[float]) -> Sequence[object]:
            lexemes, near = words if use_words else [], vector if use_vector else None
            return (await search.hybrid(conn, who, lexemes, which, 10, vector=near, model=NAME)).hits

        return once

    async def light(words: list[str], _: list[float]) -> Sequence[object]:
        return await recalling.recalled(conn, owner, words, Label.KNOWN, 15)

    yield await timed("each turn's words", light)
    for name, which in filters.items():
        yield await timed(f"hybrid{name}", by(which, owner, use_words=True, use_vector=True))
    yield await timed("hybrid, a member of 100 rows", by(anything, member, use_words=True, use_vector=True))
    yield await timed("keyword", by(anything, owner, use_words=True, use_vector=False))
    yield await timed("semantic", by(anything, owner, use_words=False, use_vector=True))


def report(found: Measured) -> str:
    """The figures as a Markdown table."""
    head = (
        f"{found.rows:,} turns: {found.inserted_per_s:,.0f} rows/s stored, {found.counted_per_s:,.0f} rows/s counted, "
        f"index built in {found.index_s:.0f} s, its recall {found.recall:.3f}\n\n"
        "| search | p50 ms | p95 ms | CPU ms | rows |\n|---|---|---|---|---|\n"
    )
    return head + "\n".join(
        f"| {row.what} | {row.p50_ms:.1f} | {row.p95_ms:.1f} | {row.cpu_ms:.1f} | {row.rows:.1f} |"
        for row in found.searches
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES)
    parser.add_argument("--json", type=Path, default=Path("build/memory.json"), help="where the figures go")
    options = parser.parse_args()
    found = []
    for rows in options.rows:
        found.append(asyncio.run(measure(rows)))
        print(report(found[-1]), flush=True)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps([asdict(each) for each in found], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

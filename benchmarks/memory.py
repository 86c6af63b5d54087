"""`python -m benchmarks.memory [--rows 10000 100000 1000000]`: searches of memory in stores of made-up rows.

One owner has nearly all rows: sessions of ten turns, with one memory each; a member has a hundred. Words follow Zipf's
law. Vectors resemble those of a language model: they share a direction, lie around two thousand topics, one a session,
and have few dimensions that matter. Rows are copied in and indexed afterwards, then some are stored as the product
stores them. Everything runs on an embedded Postgres of its own, as `supaclaw up` sets it up.
"""

import argparse
import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import cast

import numpy as np
from numpy.typing import NDArray

from benchmarks.processes import cpu_ns
from benchmarks.statistics import p95
from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.memory.memories import Kind, MemoryFilter
from gateway.domain.principals import Label, Role
from gateway.store.connection.pool import Connection, Database, take_long
from gateway.store.embedded.postgres import EmbeddedPostgres
from gateway.store.memory import indexing, search, vectors
from gateway.store.migrate import migrate
from gateway.store.people import principals

Search = Callable[[list[str], list[float]], Awaitable[Sequence[object]]]
"""By words and a vector; what is found."""

SIZES = (10_000, 100_000)
QUERIES = 60
DIMENSIONS, LATENT, TOPICS, VOCABULARY, WORDS = 384, 48, 2_000, 50_000, 14
MEMBERS_ROWS = 100
STORED = 1_000
"""Turns that are stored once all indexes are there."""
BATCH = 20_000
LONGEST = 7200.0
BEGIN = datetime(2024, 1, 1, tzinfo=UTC)
NAME = "made-up"

_INDEXES = """
select i.indexrelid::regclass::text as name, pg_get_indexdef(i.indexrelid) as definition from pg_index i
where i.indrelid in ('messages'::regclass, 'memories'::regclass, 'memory_vectors'::regclass)
  and not exists (select from pg_constraint c where c.conindid = i.indexrelid)
"""
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
insert into memories (principal_id, kind, label, origin, session_id, message_id, place, text, category, importance,
                      tags, lexemes, counted, created_at)
select $1, case when m then 'memory' else 'turn' end, 0, 'bench', md5('s' || (n - 1) / 10)::uuid,
       case when not m then n end,
       case when not m then (n - 1) % 10 + 1 end, case when m then w end, case when m then 'fact' end,
       case when m then n / 10 % 100 / 100.0 else 0.5 end,
       case when m and n % 1000 = 1 then '{rare}'::text[] else '{}' end,
       array_to_tsvector(string_to_array(w, ' ')), $5, $4::timestamptz + n * interval '10 minutes'
from unnest($2::int[], $3::text[]) as g (n, w), unnest(case n % 10 when 1 then '{f,t}'::bool[] else '{f}'::bool[] end) m
"""
_COUNTED = """
with words as (
  insert into memory_df (principal_id, lexeme, df)
  select principal_id, lexeme, count(*) from memories, unnest(tsvector_to_array(lexemes)) lexeme group by 1, 2
)
insert into memory_stats (principal_id, n) select principal_id, count(*) from memories group by 1
"""
_COPIED = np.dtype(
    [
        ("columns", ">i2"),
        ("memory_size", ">i4"),
        ("memory", ">i8"),
        ("model_size", ">i4"),
        ("model", ">i2"),
        ("principal_size", ">i4"),
        ("principal", "V16"),
        ("vector_size", ">i4"),
        ("dimensions", ">i2"),
        ("unused", ">i2"),
        ("vector", ">f2", (DIMENSIONS,)),
    ]
)
"""A row of `memory_vectors` in Postgres's binary form of COPY."""


@dataclass(frozen=True, slots=True)
class Timed:
    """One kind of search: milliseconds; CPU is the database's, which other work on the machine changes little."""

    what: str
    p50_ms: float
    p95_ms: float
    cpu_p50_ms: float
    cpu_p95_ms: float
    rows: float


@dataclass(frozen=True, slots=True)
class Measured:
    """A store of one size. `copied_per_s` without indexes; `stored_per_s` with all of them, counted and with vectors.

    `recall` is that of the index against exact distances, of the ten nearest.
    """

    rows: int
    copied_per_s: float
    indexes_s: float
    vector_index_s: float
    stored_per_s: float
    recall: float
    searches: list[Timed]


class World:
    """What is said in it: the words and the vector of a row."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(7)
        weights = 1 / np.arange(1, VOCABULARY + 1)
        self._sums = np.cumsum(weights / weights.sum())
        self._axes = self._normal(LATENT, DIMENSIONS) / np.sqrt(1 + np.arange(LATENT, dtype=np.float32))[:, None]
        self._topics = self._normal(TOPICS, LATENT)
        self._shared = 3 * self._normal(1, DIMENSIONS)

    def words(self, count: int) -> list[str]:
        """Texts of so many rows, as lexemes."""
        drawn = np.searchsorted(self._sums, self._random.random((count, WORDS)))
        return [" ".join(f"w{number}" for number in row) for row in drawn]

    def vectors(self, count: int, together: int = 1) -> "NDArray[np.float32]":
        """Unit vectors of so many rows; so many in succession are about one topic."""
        topics = np.repeat(self._random.integers(TOPICS, size=count // together + 1), together)[:count]
        meanings = self._topics[topics] + 0.7 * self._normal(count, LATENT)
        found = self._shared + meanings @ self._axes + 0.2 * self._normal(count, DIMENSIONS)
        found /= np.linalg.norm(found, axis=1, keepdims=True)
        return cast("NDArray[np.float32]", found)

    def _normal(self, *shape: int) -> "NDArray[np.float32]":
        return self._random.standard_normal(shape, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Filled:
    """A store with its rows, and how long they took."""

    owner: PrincipalId
    member: PrincipalId
    model: vectors.VectorModel
    copied_per_s: float
    indexes_s: float
    vector_index_s: float


async def measure(rows: int) -> Measured:
    """Fill a store and search it."""
    world = World()
    with tempfile.TemporaryDirectory(prefix="supaclaw-bench-") as folder:
        server = EmbeddedPostgres(Path(folder))
        try:
            async with await Database.connect(await server.start()) as database:
                filled = await _filled(database, world, rows)
            await server.stop()  # the next start gives the server memory for what it has
            async with await Database.connect(await server.start()) as database:
                return await _searched(database, world, filled, rows)
        finally:
            await server.stop()


async def _filled(database: Database, world: World, rows: int) -> Filled:
    await migrate(database)
    await database.run(vectors.ensure_table)
    async with database.transaction() as tx:
        owner = await principals.add(tx, Role.OWNER, "Ada", [])
        member = await principals.add(tx, Role.MEMBER, "Bo", [])
    model = await database.run(lambda tx: vectors.request_model(tx, NAME, DIMENSIONS))
    began = perf_counter()
    definitions = await _drop_indexes(database)
    for first in range(1, rows, BATCH):
        await _fill(database, world, owner, first, min(BATCH, rows - first + 1))
    await _fill(database, world, member, rows + STORED + 11, MEMBERS_ROWS)
    for who in (owner, member):
        await _copy_vectors(database, world, who, model)
    copied = perf_counter()
    await _make_indexes(database, definitions)
    indexed = perf_counter()
    await _index_vectors(database, model)
    embedded = perf_counter()
    async with database.connection() as conn:
        await conn.execute("vacuum analyze", timeout=LONGEST)
    return Filled(owner, member, model, rows * 1.1 / (copied - began), indexed - copied, embedded - indexed)


async def _searched(database: Database, world: World, at: Filled, rows: int) -> Measured:
    stored_per_s = await _store(database, world, at.owner, at.model, rows + 1)
    async with database.connection() as conn:
        recall = await _recall(conn, world, at.owner, at.model)
        searches = [timed async for timed in _searches(conn, world, at.owner, at.member, rows)]
    return Measured(rows, at.copied_per_s, at.indexes_s, at.vector_index_s, stored_per_s, recall, searches)


async def _drop_indexes(database: Database) -> list[str]:
    """Those that no constraint needs, and the triggers that mark each row; returns what makes the indexes again."""
    async with database.transaction() as tx:
        found = await tx.fetch(_INDEXES)
        for each in found:
            await tx.execute(f"drop index {each['name']}")
        await tx.execute("alter table memories disable trigger user")
    return [each["definition"] for each in found]


async def _make_indexes(database: Database, definitions: Sequence[str]) -> None:
    async with database.transaction() as tx:
        await take_long(tx)
        await tx.execute("set local maintenance_work_mem = '512MB'")
        await tx.execute(_COUNTED, timeout=LONGEST)
        for definition in definitions:
            await tx.execute(definition, timeout=LONGEST)
        await tx.execute("alter table memories enable trigger user")


async def _index_vectors(database: Database, model: vectors.VectorModel) -> None:
    async with database.transaction() as tx:
        await vectors.index(tx, model)


async def _fill(
    database: Database, world: World, owner: PrincipalId, first: int, count: int, *, counted: bool = True
) -> None:
    numbers, words = list(range(first, first + count)), world.words(count)
    async with database.transaction() as tx:
        await tx.execute(_SESSIONS, owner, (first - 1) // 10, (first + count - 2) // 10)
        await tx.execute(_MESSAGES, owner, numbers, words, BEGIN, timeout=LONGEST)
        await tx.execute(_ROWS, owner, numbers, words, BEGIN, counted, timeout=LONGEST)


async def _copy_vectors(database: Database, world: World, owner: PrincipalId, model: vectors.VectorModel) -> None:
    async with database.transaction() as tx:
        await take_long(tx)
        ids = await tx.fetchval("select array_agg(id order by id) from memories where principal_id = $1", owner)
        await tx.copy_to_table(
            "memory_vectors",
            source=_copy_of(world, owner, model, np.array(ids)),
            columns=["memory_id", "model", "principal_id", "embedding"],
            format="binary",
            timeout=LONGEST,
        )


async def _copy_of(
    world: World, owner: PrincipalId, model: vectors.VectorModel, ids: "NDArray[np.int64]"
) -> AsyncIterator[bytes]:
    yield b"PGCOPY\n\xff\r\n\0" + bytes(8)
    for some in np.array_split(ids, len(ids) // BATCH + 1):
        rows = np.zeros(len(some), _COPIED)
        rows["columns"], rows["memory_size"], rows["memory"] = 4, 8, some
        rows["model_size"], rows["model"] = 2, model.id
        rows["principal_size"], rows["principal"] = 16, np.void(owner.bytes)
        rows["vector_size"], rows["dimensions"] = 4 + 2 * DIMENSIONS, DIMENSIONS
        rows["vector"] = world.vectors(len(some), 11)
        yield rows.tobytes()
    yield b"\xff\xff"


async def _store(database: Database, world: World, owner: PrincipalId, model: vectors.VectorModel, first: int) -> float:
    """Rows a second, as the product stores, counts and embeds them but for the model's own work."""
    began = perf_counter()
    await _fill(database, world, owner, first, STORED, counted=False)
    while await database.run(lambda tx: indexing.count_words(tx, STORED)):
        pass
    async with database.transaction() as tx:
        lacking = await vectors.list_unembedded(tx, 2 * STORED)
        await take_long(tx)
        await vectors.put(tx, model, lacking, world.vectors(len(lacking)).tolist())
    return len(lacking) / (perf_counter() - began)


async def _recall(conn: Connection, world: World, owner: PrincipalId, model: vectors.VectorModel) -> float:
    """Of the index as `memory_nearest` uses it."""
    nearest = """select memory_nearest($1, $2::smallint, $3,
                   row('{}', '{}', '{}', null, null, null, null, 2, null, false, null)::memory_filter, 100, $4)"""
    shares = []
    for vector in world.vectors(QUERIES):
        literal = f"[{','.join(map(str, vector))}]"
        exact, found = [
            await conn.fetchval(nearest, owner, model.id, literal, how, timeout=LONGEST) for how in (True, False)
        ]
        shares.append(len(set(exact[:10]) & set(found[:10])) / 10)
    return sum(shares) / len(shares)


async def _searches(
    conn: Connection, world: World, owner: PrincipalId, member: PrincipalId, rows: int
) -> AsyncIterator[Timed]:
    pid = await conn.fetchval("select pg_backend_pid()")
    session = SessionId(await conn.fetchval("select session_id from memories where principal_id = $1 limit 1", owner))
    middle = BEGIN + timedelta(minutes=5 * rows)
    anything = MemoryFilter()
    filters = {
        "": anything,
        ", memories only": replace(anything, kinds=(Kind.MEMORY,)),
        ", one tag": replace(anything, tags=("rare",)),
        ", of some importance": replace(anything, kinds=(Kind.MEMORY,), min_importance=0.9),
        ", one session": replace(anything, session=session),
        ", one week": replace(anything, since=middle, until=middle + timedelta(days=7)),
        ", one half": replace(anything, since=middle),
        ", 2 % of the time": replace(anything, since=middle, until=middle + timedelta(minutes=rows / 5)),
    }

    async def timed(what: str, search_once: Search) -> Timed:
        taken, computed, found = [], [], 0
        asked = list(zip(world.words(QUERIES + 5), world.vectors(QUERIES + 5).tolist(), strict=True))
        for words, vector in asked[:5]:
            await search_once(words.split()[:8], vector)
        for words, vector in asked[5:]:
            cpu, began = cpu_ns(pid), perf_counter()
            found += len(await search_once(words.split()[:8], vector))
            taken.append(1000 * (perf_counter() - began))
            computed.append((cpu_ns(pid) - cpu) / 1e6)
        return Timed(what, median(taken), p95(taken), median(computed), p95(computed), found / QUERIES)

    def by(which: MemoryFilter, who: PrincipalId, *, use_words: bool, use_vector: bool) -> Search:
        async def once(words: list[str], vector: list[float]) -> Sequence[object]:
            lexemes, near = words if use_words else [], vector if use_vector else None
            return (await search.hybrid(conn, who, lexemes, which, 10, vector=near, model=NAME)).hits

        return once

    async def light(words: list[str], _: list[float]) -> Sequence[object]:
        return await search.recall(conn, owner, words, Label.KNOWN, 15)

    yield await timed("each turn's words", light)
    for name, which in filters.items():
        yield await timed(f"hybrid{name}", by(which, owner, use_words=True, use_vector=True))
    yield await timed("hybrid, a member of 100 rows", by(anything, member, use_words=True, use_vector=True))
    yield await timed("keyword", by(anything, owner, use_words=True, use_vector=False))
    yield await timed("semantic", by(anything, owner, use_words=False, use_vector=True))


def report(found: Measured) -> str:
    """The figures as a Markdown table."""
    head = (
        f"{found.rows:,} turns: {found.copied_per_s:,.0f} rows/s copied, indexes of words, times and owners in "
        f"{found.indexes_s:.0f} s, of vectors in {found.vector_index_s:.0f} s, its recall@10 {found.recall:.3f}; with "
        f"all of them {found.stored_per_s:,.0f} rows/s stored\n\n"
        "| search | p50 ms | p95 ms | CPU p50 ms | CPU p95 ms | rows |\n|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(
        f"| {row.what} | {row.p50_ms:.1f} | {row.p95_ms:.1f} | {row.cpu_p50_ms:.1f} | {row.cpu_p95_ms:.1f} | "
        f"{row.rows:.1f} |"
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

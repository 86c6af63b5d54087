"""Vectors of rows, each under the model that made it, and the extension `vector`; all else works without.

A new model's vectors are made beside those of the previous one."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import cast

import asyncpg
from asyncpg.exceptions import PostgresError
from pgvector import HalfVector
from pgvector.asyncpg import register_vector

from gateway.domain.ids import MemoryId
from gateway.store.connection.pool import Connection, lock_name, take_long
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, fetch_record, statement

OLDEST_PGVECTOR = (0, 8)
NO_PGVECTOR = (
    "the database server has no pgvector, so memory is searched by words only: install its extension `vector` there"
)
EXTENSION_NOT_CREATED = (
    "memory is searched by words only: let an administrator run once in this database: create extension vector"
)
PGVECTOR_TOO_OLD = (
    "pgvector {version} is too old for searching memory by meaning: install 0.8 or newer, then run: "
    "alter extension vector update"
)


async def extension_problem(conn: Connection) -> str:
    """Why there can be no vectors, and what to do, in one line; "" if there can. Changes nothing."""
    state = await fetch_record(conn, statement("memory/extension_state"))
    if state["version"] is None:
        return EXTENSION_NOT_CREATED if state["available"] else NO_PGVECTOR
    if tuple(map(int, state["version"].split(".")[:2])) < OLDEST_PGVECTOR:
        return PGVECTOR_TOO_OLD.format(version=state["version"])
    return ""


async def ensure_table(tx: Connection) -> str:
    """Make the table for vectors if that can be; returns the `problem` if not."""
    state = await fetch_record(tx, statement("memory/extension_state"))
    if state["ready"]:
        return ""
    if state["version"] is None and state["available"]:
        await _create(tx)
    if why := await extension_problem(tx):
        return why
    await lock_name(tx, "memory_vectors")
    state = await fetch_record(tx, statement("memory/extension_state"))
    if not state["ready"]:  # else another process made it while we waited
        await tx.execute(statement("memory/vector_table"))
        # Of a role that Supabase lets in from the web.
        for role in await tx.fetch("select rolname from pg_roles where rolname in ('anon', 'authenticated')"):
            await tx.execute(f'revoke all on memory_vectors from "{role["rolname"]}"')
    return ""


async def _create(tx: Connection) -> None:
    """Create the extension outside our schema; a lack of rights is reported by `extension_problem`."""
    with suppress(PostgresError):
        async with tx.transaction():
            kept = await tx.fetchval("select to_regnamespace('extensions') is not null")
            await tx.execute(f"create extension if not exists vector schema {'extensions' if kept else 'public'}")


MAX_DIMENSIONS = 4_000
"""Dimensions that the index supports."""
INDEXED_FROM = 5_000
"""Rows of a model; fewer are compared one by one as fast."""
LONGEST_SECONDS = 3600.0
MAX_TEXT = 8_000
"""Characters of a row that are embedded; no model reads more of one text."""


@dataclass(frozen=True, slots=True)
class VectorModel:
    """An embedding model that rows have vectors of; searches use the one that is `current`."""

    id: int
    name: str
    dimensions: int
    current: bool


@dataclass(frozen=True, slots=True)
class UnembeddedMemory:
    """A row without a vector, as it was at `updated_at`."""

    id: MemoryId
    text: str
    updated_at: datetime


async def current(conn: Connection) -> VectorModel | None:
    """The model that is searched by."""
    return await fetch_first(conn, VectorModel, "select id, name, dimensions, current from memory_models where current")


async def requested_model(conn: Connection, name: str, dimensions: int | None) -> VectorModel | None:
    """The model of this name, if it is the one whose vectors are being made."""
    sql = """select id, name, dimensions, current from memory_models
             where wanted and name = $1 and dimensions = coalesce($2, dimensions)"""
    return await fetch_first(conn, VectorModel, sql, name, dimensions)


async def request_model(tx: Connection, name: str, dimensions: int) -> VectorModel:
    """From now on make vectors of this model, and note which rows lack them; the first one is searched at once.

    Raises `ValueError` for a number of dimensions that no index takes.
    """
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise ValueError(f"{name} has {dimensions} dimensions; vectors of 1 to {MAX_DIMENSIONS} can be kept")
    await take_long(tx)
    await tx.execute("update memory_models set wanted = false where wanted")
    sql = "update memory_models set name = name || ' ' || id, current = false where name = $1 and dimensions <> $2"
    await tx.execute(sql, name, dimensions)  # a provider's model may change under its name
    sql = """insert into memory_models (name, dimensions, wanted, current)
             values ($1, $2, true, not exists (select from memory_models where current))
             on conflict (name) do update set wanted = true returning id, name, dimensions, current"""
    model = await fetch_one(tx, VectorModel, sql, name, dimensions)
    await tx.execute("delete from memory_unembedded", timeout=LONGEST_SECONDS)
    await tx.execute(statement("memory/note_unembedded"), model.id, timeout=LONGEST_SECONDS)
    return model


async def count_unembedded(conn: Connection, at_most: int) -> int:
    """How many rows lack a vector, counted up to a bound."""
    return int(await conn.fetchval("select count(*) from (select from memory_unembedded limit $1) u", at_most))


async def characters_left(conn: Connection) -> int:
    """How long the texts are that lack a vector, together; for people."""
    sql = """select coalesce(sum(least(length(coalesce(m.text, s.text)), $1)), 0)
             from memory_unembedded u join memories m on m.id = u.memory_id
             left join messages s on s.id = m.message_id"""
    return int(await conn.fetchval(sql, MAX_TEXT))


async def list_unembedded(conn: Connection, limit: int) -> list[UnembeddedMemory]:
    """Rows without a vector, the newest first; a turn begins with who speaks, where that is known."""
    return await fetch_all(conn, UnembeddedMemory, statement("memory/unembedded_memories"), limit, MAX_TEXT)


async def put(
    tx: Connection, model: VectorModel, rows: Sequence[UnembeddedMemory], vectors: Sequence[Sequence[float]]
) -> int:
    """Store the vectors of rows that have not changed meanwhile; the others still lack theirs. Returns how many."""
    await _speak_vectors(tx)
    ids, versions = [row.id for row in rows], [row.updated_at for row in rows]
    made = [HalfVector(list(vector)) for vector in vectors]
    return len(await tx.fetch(statement("memory/store_vectors"), model.id, ids, versions, made))


async def settle(tx: Connection, model: VectorModel) -> bool:
    """Search by this model from now on, if no row lacks its vector; returns whether that is so."""
    if await count_unembedded(tx, 1):
        return False
    if not model.current:
        await tx.execute("update memory_models set current = false where current")
        await tx.execute("update memory_models set current = true where id = $1", model.id)
    return True


async def index(tx: Connection, model: VectorModel) -> None:
    """Make the index of a model that has many vectors. Searches work meanwhile; only the job writes vectors."""
    name = f"memory_vectors_near_{int(model.id)}"
    if await tx.fetchval("select to_regclass($1) is not null", name):
        return
    many = "select count(*) = $2 from (select from memory_vectors where model = $1 limit $2) v"
    if await tx.fetchval(many, model.id, INDEXED_FROM):
        await take_long(tx)
        sql = """select set_config('maintenance_work_mem', least(65536 + n * ($2 + 600) / 500, 4000000) || 'kB', true),
                        set_config('max_parallel_maintenance_workers', '0', true)
                 from (select count(*) as n from memory_vectors where model = $1) v"""
        # A graph that leaves memory takes hours; shared with workers, it needs a large /dev/shm.
        await tx.execute(sql, model.id, model.dimensions, timeout=LONGEST_SECONDS)
        sql = f"""create index {name} on memory_vectors
                  using hnsw ((embedding::halfvec({int(model.dimensions)})) halfvec_cosine_ops)
                  with (m = 16, ef_construction = 64) where model = {int(model.id)}"""
        await tx.execute(sql, timeout=LONGEST_SECONDS)


async def prune(tx: Connection, limit: int) -> int:
    """Remove vectors of models that are neither wanted nor current, at most so many; returns how many."""
    old = await tx.fetchval("select id from memory_models where not wanted and not current order by id limit 1")
    if old is None:
        return 0
    await tx.execute(f"drop index if exists memory_vectors_near_{int(old)}")
    sql = """delete from memory_vectors where (memory_id, model) in (
               select memory_id, model from memory_vectors where model = $1 limit $2) returning 1"""
    rows = await tx.fetch(sql, old, limit)
    if not rows:
        await tx.execute("delete from memory_models where id = $1", old)
    return len(rows)


async def state(conn: Connection) -> str:
    """How far the vectors are, or why there can be none, for people; cheap, so what is not counted yet is missing."""
    if why := await extension_problem(conn):
        return why
    row = await fetch_record(conn, statement("memory/embedding_state"))
    total = max(row["total"], row["left"])
    if not row["name"]:
        made = "no vectors yet"
    elif row["left"]:
        made = f"embedding {total - row['left']:,} of {total:,} texts with {row['name']}"
    else:
        made = f"{total:,} memories embedded with {row['name']}"
    return f"pgvector {row['version']}, {made}"


async def _speak_vectors(tx: Connection) -> None:
    """Send and read vectors as binary, on this connection."""
    sql = "select n.nspname from pg_type t join pg_namespace n on n.oid = t.typnamespace where t.typname = 'halfvec'"
    await register_vector(cast("asyncpg.Connection", tx), schema=await tx.fetchval(sql))


@dataclass(frozen=True, slots=True)
class MostRows:
    """How many rows a model was allowed to work on, and how many it was asked for."""

    allowed: int
    asked: int


async def most_rows(conn: Connection, tool: str, model: str) -> MostRows:
    """The most rows over all approvals of this tool for `model`."""
    return await fetch_one(conn, MostRows, statement("memory/most_rows"), tool, {"model": model})

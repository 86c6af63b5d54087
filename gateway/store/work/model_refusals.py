"""Parts of requests that models refused, by the source that stands for a model at its address."""

from datetime import datetime

from asyncpg import Record

from gateway.store.connection.pool import Connection


async def is_kept(conn: Connection, source: str, part: str) -> bool:
    """Whether such a refusal was stored before, so that the owner was told."""
    sql = "select exists (select from model_refusals where source = $1 and part = $2)"
    return bool(await conn.fetchval(sql, source, part))


async def keep(conn: Connection, source: str, part: str, model: str, at: datetime) -> None:
    """Store a refusal of which the owner has been told."""
    sql = """insert into model_refusals (source, part, model, refused_at) values ($1, $2, $3, $4)
             on conflict (source, part) do update set refused_at = excluded.refused_at"""
    await conn.execute(sql, source, part, model, at)


async def since(conn: Connection, at: datetime) -> list[Record]:
    """Those that were made or repeated after then: source, part, model, refused_at."""
    return await conn.fetch("select source, part, model, refused_at from model_refusals where refused_at > $1", at)

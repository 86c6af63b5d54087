"""Parts of requests that models refused, by the source that stands for a model at its address."""

from datetime import datetime

from asyncpg import Record

from gateway.store.connection.pool import Connection


async def keep(conn: Connection, source: str, part: str, model: str, at: datetime) -> bool:
    """Store a refusal; whether it is the first of its kind, so that nobody was told yet."""
    sql = """insert into model_refusals as r (source, part, model, refused_at) values ($1, $2, $3, $4)
             on conflict (source, part) do update set refused_at = excluded.refused_at
             returning xmax = 0"""
    return bool(await conn.fetchval(sql, source, part, model, at))


async def since(conn: Connection, at: datetime) -> list[Record]:
    """Those that were made or repeated after then: source, part, model, refused_at."""
    return await conn.fetch("select source, part, model, refused_at from model_refusals where refused_at > $1", at)

"""Facts about a database server: its version and clock, the rights of Supabase's web roles, free connections."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.store.connection.pool import Connection, Database
from gateway.store.connection.rows import fetch_record, statement

_SIZE = """
select sum(pg_table_size(oid))::bigint from pg_class
where relkind = 'r' and relnamespace = 'supaclaw'::regnamespace
"""


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """The server's answers. `migrations` counts those applied; its clock may be ahead of ours; `denied` are tables.

    `supabase_bytes` is the size of the whole database if it is one of Supabase's.
    """

    version: str
    read_only: bool
    migrations: int
    round_trip_ms: float
    ahead_seconds: float
    denied: str = ""
    supabase_bytes: int = 0


async def look(database: Database) -> ServerFacts:
    """Ask the server; raises `SupaclawError` when it does not answer."""
    async with database.connection() as connection:
        row = await fetch_record(connection, statement("server/server_facts"))
        ahead = (row["now"] - datetime.now(UTC)).total_seconds()
        count = "select count(*) from supaclaw.migrations" if row["has_ledger"] else "select 0"
        applied = await connection.fetchval(count)
        since = time.perf_counter()
        await connection.execute("select 1")
        round_trip = time.perf_counter() - since
    denied = row["denied"] or ""
    return ServerFacts(
        row["version"], row["read_only"], applied, round_trip * 1000, ahead, denied, supabase_bytes=row["supabase"]
    )


async def size_of_tables(database: Database) -> int:
    """Bytes of our rows, without indexes."""
    return int(await database.read(lambda conn: conn.fetchval(_SIZE)))


async def seen_from_the_web(conn: Connection) -> list[str]:
    """Rights of `anon` and `authenticated` in our schema, one line each; empty if all is well."""
    return [str(row[0]) for row in await conn.fetch(statement("server/rights_of_web_roles"))]


async def hide_from_the_web(conn: Connection) -> None:
    """Take every right in our schema from them. A hosted Postgres may grant them whatever is made."""
    await conn.execute(statement("server/hide_from_web_roles"))


async def free_connections(conn: Connection) -> int:
    """How many more the server, its database and this role allow a plain user."""
    return int(await conn.fetchval(statement("server/free_connections")))

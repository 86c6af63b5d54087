"""What a database server says of itself: only read, and without needing our schema."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.store.connection.pool import Database

_FACTS = """
select split_part(current_setting('server_version'), ' ', 1) as version,
       pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on' as read_only,
       to_regclass('supaclaw.migrations') is not null as has_ledger,
       (select string_agg(relname, ', ' order by relname) from pg_class
        where relnamespace = to_regnamespace('supaclaw') and relkind = 'r'
          and not (has_table_privilege(oid, 'select') and has_table_privilege(oid, 'insert')
                   and has_table_privilege(oid, 'update') and has_table_privilege(oid, 'delete'))) as denied,
       clock_timestamp() as now
"""

_SIZE = """
select sum(pg_table_size(oid))::bigint from pg_class
where relkind = 'r' and relnamespace = 'supaclaw'::regnamespace
"""


@dataclass(frozen=True, slots=True)
class Server:
    """What it said. `migrations` is how many are applied; its clock may be ahead of ours; `denied` are tables."""

    version: str
    read_only: bool
    migrations: int
    round_trip_ms: float
    ahead_seconds: float
    denied: str = ""


async def look(database: Database) -> Server:
    """Ask the server; raises `SupaclawError` when it does not answer."""
    async with database.connection() as connection:
        row = await connection.fetchrow(_FACTS)
        assert row is not None, "a select without a table has one row"
        ahead = (row["now"] - datetime.now(UTC)).total_seconds()
        count = "select count(*) from supaclaw.migrations" if row["has_ledger"] else "select 0"
        applied = await connection.fetchval(count)
        since = time.perf_counter()
        await connection.execute("select 1")
        round_trip = time.perf_counter() - since
    return Server(row["version"], row["read_only"], applied, round_trip * 1000, ahead, row["denied"] or "")


async def size_of_tables(database: Database) -> int:
    """Bytes of our rows, without indexes."""
    async with database.connection() as connection:
        return int(await connection.fetchval(_SIZE))

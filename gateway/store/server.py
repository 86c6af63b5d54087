"""What a database server is and whether it suits us: only read, and without needing our schema."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gateway.store.pool import Connection, Database

OLDEST = 15
_TRIES = 3

_FACTS = """
select current_setting('server_version_num')::int / 10000 as major,
       split_part(current_setting('server_version'), ' ', 1) as version,
       (select default_version from pg_available_extensions where name = 'vector') as pgvector,
       current_user::text as role,
       (select pg_get_userbyid(nspowner)::text from pg_namespace where nspname = 'supaclaw') as owner,
       coalesce((select pg_has_role(nspowner, 'usage') from pg_namespace where nspname = 'supaclaw'),
                has_database_privilege(current_database(), 'create')) as may_write,
       pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on' as read_only,
       to_regclass('supaclaw.migrations') is not null as has_ledger,
       clock_timestamp() as now
"""


@dataclass(frozen=True, slots=True)
class Server:
    """What a server said of itself. `applied` is the digest of each migration by its number."""

    version: str
    major: int
    pgvector: str | None
    role: str
    owner: str | None
    may_write: bool
    read_only: bool
    applied: Mapping[int, str]
    round_trip_ms: float
    ahead: timedelta
    """How far its clock is ahead of ours."""


async def look(database: Database) -> Server:
    """Ask the server; raises `SupaclawError` when it does not answer."""
    async with database.connection() as connection:
        round_trip = min([await _round_trip(connection) for _ in range(_TRIES)])
        row = await connection.fetchrow(_FACTS)
        assert row is not None, "a select without a table has one row"
        ahead = row["now"] - datetime.now(UTC) + timedelta(seconds=round_trip / 2)
        facts = {name: value for name, value in row.items() if name not in {"has_ledger", "now"}}
        applied = await _applied(connection) if row["has_ledger"] and row["may_write"] else {}
    return Server(**facts, applied=applied, round_trip_ms=round_trip * 1000, ahead=ahead)


async def _round_trip(connection: Connection) -> float:
    since = time.perf_counter()
    await connection.fetchval("select 1")
    return time.perf_counter() - since


async def _applied(connection: Connection) -> Mapping[int, str]:
    rows = await connection.fetch("select number, sha256 from supaclaw.migrations")
    return {row["number"]: row["sha256"] for row in rows}

"""Facts about a database server: its version and clock, the rights of Supabase's web roles, free connections."""

import time
from dataclasses import dataclass
from datetime import UTC, datetime

from gateway.store.connection.pool import Connection, Database
from gateway.store.connection.rows import fetch_record

_FACTS = """
select split_part(current_setting('server_version'), ' ', 1) as version,
       pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on' as read_only,
       to_regclass('supaclaw.migrations') is not null as has_ledger,
       (select string_agg(relname, ', ' order by relname) from pg_class
        where relnamespace = to_regnamespace('supaclaw') and relkind = 'r'
          and not (has_table_privilege(oid, 'select') and has_table_privilege(oid, 'insert')
                   and has_table_privilege(oid, 'update') and has_table_privilege(oid, 'delete'))) as denied,
       case when to_regrole('supabase_admin') is null then 0 else pg_database_size(current_database()) end as supabase,
       clock_timestamp() as now
"""

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
        row = await fetch_record(connection, _FACTS)
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


_SEEN = """
with web as (select rolname as role from pg_roles where rolname in ('anon', 'authenticated')),
home as (select oid from pg_namespace where nspname = 'supaclaw'),
seen (role, kind, name) as (
  select role, 'tables ', relname from web, pg_class c join home on home.oid = relnamespace
  where relkind in ('r', 'v', 'm', 'p', 'f') and (has_table_privilege(role, c.oid, 'delete, truncate, trigger')
    or has_any_column_privilege(role, c.oid, 'select, insert, update, references'))
  union all
  select role, 'sequences ', relname from web, pg_class c join home on home.oid = relnamespace
  where case relkind when 'S' then has_sequence_privilege(role, c.oid, 'usage, select, update') end
  union all
  select role, 'functions ', proname from web, pg_proc p join home on home.oid = pronamespace
  where has_function_privilege(role, p.oid, 'execute')
)
select role || ' may use the schema' from web, home where has_schema_privilege(role, home.oid, 'usage')
union all
select role || ' has rights on ' || kind || string_agg(distinct name, ', ' order by name) from seen group by role, kind
order by 1
"""

_HIDE = """
do $$
declare r text;
begin
  for r in select rolname from pg_roles
    where rolname in ('anon', 'authenticated') and to_regnamespace('supaclaw') is not null
  loop
    execute format('revoke all on schema supaclaw from %I', r);
    execute format('revoke all on all tables in schema supaclaw from %I', r);
    execute format('revoke all on all sequences in schema supaclaw from %I', r);
    execute format('revoke all on all functions in schema supaclaw from %I', r);
  end loop;
end $$
"""

_FREE = """
with clients as (
  select datid, usesysid from pg_stat_activity
  where datid is not null and pid <> pg_backend_pid()
    and coalesce(backend_type, 'client backend') = 'client backend'  -- null: not ours to see
)
select least(
  current_setting('max_connections')::int
    - coalesce(current_setting('superuser_reserved_connections', true)::int, 0)
    - coalesce(current_setting('reserved_connections', true)::int, 0) - (select count(*)::int from clients),
  (select nullif(datconnlimit, -1) - (select count(*)::int from clients where datid = oid)
   from pg_database where datname = current_database()),
  (select nullif(rolconnlimit, -1) - (select count(*)::int from clients where usesysid = oid)
   from pg_roles where rolname = current_user))
"""


async def seen_from_the_web(conn: Connection) -> list[str]:
    """Rights of `anon` and `authenticated` in our schema, one line each; empty if all is well."""
    return [str(row[0]) for row in await conn.fetch(_SEEN)]


async def hide_from_the_web(conn: Connection) -> None:
    """Take every right in our schema from them. A hosted Postgres may grant them whatever is made."""
    await conn.execute(_HIDE)


async def free_connections(conn: Connection) -> int:
    """How many more the server, its database and this role allow a plain user."""
    return int(await conn.fetchval(_FREE))

"""What others get of this database: Supabase's roles of the web, and the connections that are left."""

from gateway.store.pool import Connection

_SEEN = """
with web as (select rolname from pg_roles where rolname in ('anon', 'authenticated')),
things as (
  select oid, relname as name, 'r' as kind from pg_class
  where relnamespace = to_regnamespace('supaclaw') and relkind in ('r', 'v', 'm', 'p', 'f')
)
select rolname || ' may use the schema' from web
where to_regnamespace('supaclaw') is not null and has_schema_privilege(rolname, to_regnamespace('supaclaw'), 'usage')
union all
select rolname || ' has rights on ' || string_agg(name, ', ' order by name) from web, things
where has_table_privilege(rolname, oid, 'select, insert, update, delete, truncate') group by rolname
order by 1
"""

_FREE = """
select current_setting('max_connections')::int
  - coalesce(current_setting('superuser_reserved_connections', true)::int, 0)
  - coalesce(current_setting('reserved_connections', true)::int, 0)
  - (select count(*)::int from pg_stat_activity where backend_type = 'client backend' and pid <> pg_backend_pid())
"""


async def seen_from_the_web(conn: Connection) -> list[str]:
    """What `anon` and `authenticated` may do in our schema, one line each; nothing, if all is well."""
    return [str(row[0]) for row in await conn.fetch(_SEEN)]


async def free_connections(conn: Connection) -> int:
    """How many more the server takes from a plain user."""
    return int(await conn.fetchval(_FREE))

"""What others get of this database: Supabase's roles of the web, and the connections that are left."""

from gateway.store.connection.pool import Connection

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
    """What `anon` and `authenticated` may do in our schema, one line each; nothing, if all is well."""
    return [str(row[0]) for row in await conn.fetch(_SEEN)]


async def hide_from_the_web(conn: Connection) -> None:
    """Take every right in our schema from them. A hosted Postgres may grant them whatever is made."""
    await conn.execute(_HIDE)


async def free_connections(conn: Connection) -> int:
    """How many more the server, its database and this role allow a plain user."""
    return int(await conn.fetchval(_FREE))

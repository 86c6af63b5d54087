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

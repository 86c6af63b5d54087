"""schema.sql, which people read, against the schema that the migrations make."""

import re
from difflib import unified_diff

import asyncpg

from gateway.store.migrate import MIGRATIONS
from tests.conftest import Server

SCHEMA = MIGRATIONS.with_name("schema.sql")
CATALOGUE = """
with ours as (
  select c.oid, c.relname, c.relkind, c.relacl, c.reloptions, c.relrowsecurity, c.relforcerowsecurity
  from pg_class c where relnamespace = 'supaclaw'::regnamespace and relkind in ('r', 'v', 'S')
), columns as (
  select o.relname, a.*, pg_get_expr(d.adbin, d.adrelid) as value
  from ours o join pg_attribute a on a.attrelid = o.oid and a.attnum > 0 and not a.attisdropped
  left join pg_attrdef d on d.adrelid = o.oid and d.adnum = a.attnum
)
select format('relation %s', relname) as thing,
       concat_ws(' ', relkind, (select string_agg(x, ' ' order by x) from unnest(reloptions) x),
                 case when relrowsecurity then 'row security' end, case when relforcerowsecurity then 'forced' end)
       as definition from ours
union all
select format('column %s.%s', relname, attname),
       concat_ws(' ', format_type(atttypid, atttypmod), case when attnotnull then 'not null' end,
                 'default ' || value, 'identity ' || nullif(attidentity::text, ''),
                 'generated ' || nullif(attgenerated::text, ''))
from columns
union all
select format('constraint %s.%s', o.relname, conname), replace(pg_get_constraintdef(k.oid), ' NOT VALID', '')
from pg_constraint k join ours o on o.oid = k.conrelid where contype <> 'n'
union all
select format('index %s', i.indexrelid::regclass::text), pg_get_indexdef(i.indexrelid)
from pg_index i join ours o on o.oid = i.indrelid
union all
select format('view %s', relname), pg_get_viewdef(oid) from ours where relkind = 'v'
union all
select format('type %s', t.typname), string_agg(format('%s %s', attname, format_type(atttypid, atttypmod)), ', '
                                                order by attnum)
from pg_type t join pg_class c on c.oid = t.typrelid and c.relkind = 'c' join pg_attribute a on a.attrelid = c.oid
where t.typnamespace = 'supaclaw'::regnamespace group by t.typname
union all
select format('function %s', oid::regprocedure), pg_get_functiondef(oid)
from pg_proc where pronamespace = 'supaclaw'::regnamespace
union all
select format('trigger %s.%s', o.relname, tgname), pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text
from pg_trigger t join ours o on o.oid = t.tgrelid where not tgisinternal
union all
select format('policy %s.%s', tablename, policyname),
       concat_ws(' ', permissive, cmd, 'to', roles::text, 'using', qual, 'check', with_check)
from pg_policies where schemaname = 'supaclaw'
union all
select format('right on %s of %s', thing, case when grantee = 0 then 'public' else grantee::regrole::text end),
       string_agg(privilege_type || case when is_grantable then ' with grant option' else '' end, ', '
                  order by privilege_type)
from (
  select 'schema' as thing, nspacl as acl from pg_namespace where nspname = 'supaclaw'
  union all select oid::regprocedure::text, coalesce(proacl, acldefault('f', proowner))
  from pg_proc where pronamespace = 'supaclaw'::regnamespace
  union all select relname, relacl from ours
  union all select format('%s.%s', relname, attname), attacl from columns
  union all select 'type ' || typname, typacl from pg_type where typnamespace = 'supaclaw'::regnamespace
) having_rights, aclexplode(acl) group by thing, grantee
union all
select 'comment on ' || pg_describe_object(classoid, objoid, objsubid), description
from pg_description, pg_identify_object(classoid, objoid, objsubid) object where object.schema = 'supaclaw'
order by thing
"""


async def catalogue(conn: asyncpg.Connection) -> list[str]:
    """One line for each object of the schema; comments and line breaks within functions don't count."""
    lines = []
    for thing, definition in await conn.fetch(CATALOGUE):
        code = re.sub(r"(?m)--.*$", "", definition) if thing.startswith("function") else definition
        lines.append(f"{thing}: {' '.join(code.split())}")
    return lines


async def test_the_schema_file_makes_what_the_migrations_make(dsn: str, empty_dsn: str, server: Server) -> None:
    migrated = await asyncpg.connect(dsn)
    loaded = await asyncpg.connect(empty_dsn)
    try:
        await loaded.execute(SCHEMA.read_text(encoding="utf-8"))
        of_migrations, of_file = await catalogue(migrated), await catalogue(loaded)
    finally:
        await migrated.close()
        await loaded.close()
    assert len(of_migrations) > 1_000
    difference = unified_diff(of_migrations, of_file, "the migrations", SCHEMA.name, n=0, lineterm="")
    assert "\n".join(difference) == "", "a migration changes schema.sql in the same commit"

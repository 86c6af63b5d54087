select c.relname::text as name,
  array(select a.attname::text from pg_attribute a
        where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped and a.attgenerated = ''
        order by a.attnum) as columns,
  array(select r.relname::text from pg_constraint k join pg_class r on r.oid = k.confrelid
        where k.conrelid = c.oid and k.contype = 'f' and r.oid <> c.oid) as needs
from pg_class c
where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r' and not c.relname = any($1::text[])
  and coalesce(obj_description(c.oid, 'pg_class'), '') not like 'derived:%'
order by c.relname

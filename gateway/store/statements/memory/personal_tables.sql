select c.relname::text as name from pg_attribute a join pg_class c on c.oid = a.attrelid
where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r' and a.attname = 'principal_id'
  and c.relname <> all($1) order by 1

select format('%I', c.relname) as table, format('%I', a.attname) as column,
       format(case t.typname when 'bytea' then 'encode(%I, ''escape'')' else '%I::text' end, a.attname) as text
from pg_attribute a join pg_class c on c.oid = a.attrelid join pg_type t on t.oid = a.atttypid
where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r' and a.attnum > 0 and not a.attisdropped
  and t.typname in ('text', '_text', 'bytea', 'json', 'jsonb', 'tsvector') order by 1, 2

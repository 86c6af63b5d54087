-- A summary that has any word of what was replaced says so: summaries put facts in words of their own.
create or replace function memory_replacements(p_rows bigint[]) returns table (replaces bigint, id bigint, version text)
language sql stable set search_path = supaclaw, pg_temp as $$
  with old as (
    select m.id as row, m.id from memories m where m.id = any(p_rows)
    union select m.id, s.memory_id from memories m join memory_sources s using (message_id) where m.id = any(p_rows)
    union select m.id, g.id from memories m join memories g using (session_id)
      where m.id = any(p_rows) and m.kind = 'summary' and g.superseded_by is not null
  ), newer as (
    select distinct on (old.row) old.row, n.id, n.xmin
    from old join memories m on m.id = old.row join memories g on g.id = old.id and g.superseded_by is not null
    join memories n on n.id = memory_newest(g.id)
    where m.kind <> 'summary' or exists (
      select from unnest(tsvector_to_array(g.lexemes)) word
      where word = any (tsvector_to_array(m.lexemes)) and word <> all (tsvector_to_array(n.lexemes)))
    order by old.row, g.id desc
  )
  select newer.row, newer.id, newer.xmin::text from newer
  where not exists (select from old where old.row = newer.row and old.id = newer.id)
$$;

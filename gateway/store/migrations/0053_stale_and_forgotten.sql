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

-- Until it has a row of memory, what the agent said after something was forgotten may repeat that, so no session begins
-- with it.
create or replace function bootstrap_last(p_principal uuid, p_as_of timestamptz, p_at_most smallint, p_agent text, p_enough int,
  p_session uuid)
returns table (ended_at timestamptz, label smallint, lines text[], rows bigint[])
language sql stable set search_path = supaclaw, pg_temp as $$
  with last as (
    select s.id, s.ended_at, s.label from sessions s
    where s.principal_id = p_principal and s.ended_by_person and s.ended_at <= p_as_of
      and s.id is distinct from p_session and s.label <= p_at_most and s.agent = p_agent
    order by s.ended_at desc limit 1
  ), newest as (
    select * from memories where principal_id = p_principal and kind = 'summary' order by id desc limit p_enough
  ), said as (
    select m.id, t.id as row, case m.kind when 'user' then 'the user: ' else 'the agent: ' end || left(m.text, 200) line
    from messages m join last on m.session_id = last.id left join memories t on t.message_id = m.id
    where seq is not null and withdrawn is null and (m.kind = 'user' or (m.kind = 'assistant' and final))
      and t.forgotten_at is null and (t.id is not null or m.kind = 'user' or not exists (
        select from memories f where f.principal_id = p_principal and f.kind = 'memory'
          and f.forgotten_at > f.created_at and f.forgotten_at <= m.created_at))
    order by seq desc limit 3
  ), summary as (
    select n.id as row, n.text as line
    from newest n join last on n.session_id = last.id and n.created_at <= p_as_of and n.label <= p_at_most
    where n.forgotten_at is null and n.superseded_at is null order by n.id desc limit 1
  ), told as (
    select 0 as id, * from summary union all select * from said where not exists (select from summary)
  )
  select last.ended_at, last.label, array(select line from told order by id),
         array(select coalesce(told.row, 0) from told order by id)
  from last
$$;

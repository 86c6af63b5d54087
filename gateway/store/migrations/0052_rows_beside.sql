-- The rows beside those found are looked up one by one. The planner takes memory_matches() to leave one row, so, once it
-- had statistics, it read the whole table for it and compared each row with all that were found: 30 of 35 ms among 600.
do $$
declare
  v_body text := pg_get_functiondef('hybrid_search'::regproc);
  v_from int := strpos(v_body, '  select array_agg(distinct found.id) into v_rows');
  v_end constant text := '  ) found;' || chr(10);
  v_to int := strpos(v_body, v_end);
begin
  assert v_from > 0 and v_to > v_from, v_body;
  execute left(v_body, v_from - 1) || $new$  with lending as materialized (
    select m.id, m.kind, m.session_id, m.path, array[m.place - 1, m.place + 1, m.place + 2] as beside
    from memories m where m.id = any(v_by_word[:lenders] || v_near[:lenders])
  )
  select array_agg(distinct found.id) into v_rows from (
    select unnest(v_by_word || v_near) as id
    union all
    select (n).id from lending l cross join lateral (
      select n from memories n
      where n.kind = 'turn' and n.session_id = l.session_id and n.place = any(l.beside) offset 0) t (n)
    where l.kind = 'turn' and memory_matches(n, f)
    union all
    select (n).id from lending l cross join lateral (
      select n from memories n
      where n.kind = 'chunk' and n.principal_id = p_principal and n.path = l.path and n.place = any(l.beside)
      offset 0) t (n)
    where l.kind = 'chunk' and memory_matches(n, f)
    union all
    select (n).id from lending l join memory_sources s on s.memory_id = l.id cross join lateral (
      select n from memories n where n.message_id = s.message_id offset 0) t (n)
    where memory_matches(n, f)
$new$ || substr(v_body, v_to);
end $$;

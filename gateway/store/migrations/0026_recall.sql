-- Memories and summaries lend nothing to what lies around them, so fewer candidates rank them as well; among many other
-- rows each candidate is dear.
do $$
declare
  v_body text := pg_get_functiondef('hybrid_search'::regproc);
  v_old constant text := 'depth constant int := greatest(100, p_k);';
begin
  assert strpos(v_body, v_old) > 0, v_old;
  execute replace(v_body, v_old, $new$depth constant int := case
    when cardinality(f.kinds) > 0 and f.kinds <@ '{memory,summary}' then greatest(40, 2 * p_k) else greatest(100, p_k) end;$new$);
end $$;

-- The memories that a turn was reminded of lie with its answer; before, a step of its trace named them.
alter table messages add column remembered bigint[] not null default '{}';
update messages m set remembered = string_to_array(n.ids, ' ')::bigint[] from (
  select split_part(name, ' ', 2)::bigint as answer, substring(name from '^reminded \d+ (.+)$') as ids
  from task_steps where kind = 'note' and name ~ '^reminded \d+ \d+( \d+)*$') n where m.id = n.answer;
delete from task_steps where kind = 'note' and starts_with(name, 'reminded ');

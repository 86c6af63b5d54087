select t.id, coalesce(t.input ->> 'name', t.kind) as name, t.agent, t.status, t.budget_usd, t.created_at,
       (t.input ->> 'forked_from')::uuid as fork_of, n.counts, n.updated_at, s.cost_usd, s.tokens,
       array(select 'A' || r.id from reviews r join tasks w on w.id = r.task_id
             where w.master_id = t.id and r.state = 'open'
             order by r.id) as waits_for
from tasks t cross join lateral (
  select jsonb_object_agg(status, tasks) as counts, max(updated_at) as updated_at from (
    select status, count(*) as tasks, max(updated_at) as updated_at
    from tasks where master_id = t.id group by status) each) n
cross join lateral (
  select coalesce(sum(s.cost_usd), 0) as cost_usd,
         coalesce(sum(s.tokens_in + s.tokens_out), 0)::bigint as tokens
  from tasks w join task_steps s on s.task_id = w.id where w.master_id = t.id) s
where t.principal_id = $1 and t.parent_id is null and t.kind = 'agent' and t.input ->> 'origin' = 'task'
  and ($2::text is null or t.status = $2) and ($3::text is null or t.agent = $3)
  and ($4::text is null or strpos(lower(t.input ->> 'name'), lower($4)) > 0)
  and ($5::uuid is null or t.seq < (select seq from tasks where id = $5))
order by t.seq desc limit $6

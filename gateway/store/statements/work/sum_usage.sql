insert into usage as u (
  day, principal_id, session_id, kind, model, calls, tokens_in, tokens_out, tokens_cached, cost_usd)
select (s.created_at at time zone 'utc')::date, s.principal_id, t.session_id, t.kind, s.name, count(*),
       sum(s.tokens_in), sum(s.tokens_out), sum(s.tokens_cached), sum(s.cost_usd)
from tasks t join task_steps s on s.task_id = t.id and s.kind = 'model'
where t.master_id = any($1) group by 1, 2, 3, 4, 5
on conflict (day, principal_id, session_id, kind, model) do update
set calls = u.calls + excluded.calls, tokens_in = u.tokens_in + excluded.tokens_in,
    tokens_out = u.tokens_out + excluded.tokens_out, tokens_cached = u.tokens_cached + excluded.tokens_cached,
    cost_usd = u.cost_usd + excluded.cost_usd

with calls as (
  select s.*, t.session_id, t.kind as work from task_steps s join tasks t on t.id = s.task_id
  where s.kind = 'model' and s.created_at >= $1 and s.created_at < $2),
said as (
  select session_id, created_at as at, null::bigint as step, origin from messages
  where kind = 'user' and origin <> all($3) and session_id in (select session_id from calls)
  union all select session_id, created_at, id, null from calls where session_id is not null),
counted as (
  select *, count(origin) over (partition by session_id order by at, step nulls first) as nth from said),
answering as (
  select step, coalesce(max(origin) over (partition by session_id, nth),
                        first_value(origin) over (partition by session_id order by origin is null, at))
           as channel
  from counted),
used as (
  select (c.created_at at time zone 'utc')::date as day, c.name as model, c.principal_id, c.session_id,
         coalesce(a.channel, c.work) as channel, count(*)::int as calls,
         sum(c.tokens_in)::bigint as tokens_in, sum(c.tokens_out)::bigint as tokens_out,
         sum(c.tokens_cached)::bigint as tokens_cached, sum(c.cost_usd) as cost_usd
  from calls c left join answering a on a.step = c.id group by 1, 2, 3, 4, 5
  union all
  select day, model, principal_id, session_id,
         coalesce((select origin from messages m where m.session_id = u.session_id and m.kind = 'user'
                   and origin <> all($3) order by seq limit 1), kind),
         calls, tokens_in, tokens_out, tokens_cached, cost_usd
  from usage u where day >= ($1 at time zone 'utc')::date and day < ($2 at time zone 'utc')::date)
select u.*, p.name as person from used u join principals p on p.id = u.principal_id
order by u.day, u.model

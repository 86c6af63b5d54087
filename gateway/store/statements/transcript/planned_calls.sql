select i.plan_step as number, i.unasked, p.text as plan, p.result, a.text as asked from messages i
left join messages a on a.task_id = i.task_id and a.ordinal = i.ordinal and a.kind = 'tool_result'
  and a.text like '{"waiting_for_approval":%'
cross join lateral (
  select c.text, r.text as result from messages c
  join messages r on r.task_id = c.task_id and r.ordinal = c.ordinal and r.kind = 'tool_result'
  where c.task_id = $1 and c.kind = 'tool_intent' and c.tool = $3 and c.ordinal < i.ordinal
    and r.text like '{"planned":%' order by c.ordinal desc limit 1) p
where i.task_id = $1 and i.kind = 'tool_intent' and i.plan_step is not null and i.created_at >= $2
order by i.ordinal

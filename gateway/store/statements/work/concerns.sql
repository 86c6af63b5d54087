select kind, what, at, label from (
  select 'overdue' as kind, s.name as what, s.next_run_at as at, s.label::int as label, $4::interval as after
  from schedules s
  where s.principal_id = $1 and s.next_run_at < $3 and s.paused_at is null and not exists (
    select from tasks t where t.id = s.task_id and t.status not in ('completed', 'failed', 'cancelled'))
  union all
  select 'failed', coalesce(t.input ->> 'name', t.kind), t.updated_at, coalesce((t.input ->> 'label')::int, 0),
         $5::interval
  from tasks t
  where t.principal_id = $1 and t.kind = 'agent' and t.status = 'failed'
    and t.updated_at > $2::timestamptz - $5::interval
  union all
  select case when bool_or(o.state = 'failed') then 'undelivered' else 'doubtful' end, a.channel,
         max(coalesce(o.sending_at, o.created_at)), 0, $6::interval
  from outbox o join messages m on m.id = o.message_id join addresses a on a.id = o.address_id
  where o.principal_id = $1 and o.state in ('failed', 'uncertain') and m.kind = 'assistant' and m.origin <> 'heartbeat'
  group by o.message_id, a.channel
  union all
  select 'unanswered', m.origin, m.created_at, 0, $7::interval
  from messages m
  where m.principal_id = $1 and m.address_id is not null and m.kind = 'user'
    and m.answered_by is null and m.closed_at is null
) found
where at + after > $2 and at + after <= $3 order by at limit $8

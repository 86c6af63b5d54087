select r.schedule_id, r.slot, r.principal_id, r.task_id, r.message_id, m.address_id, r.produced_at,
       m.created_at <> r.produced_at as again, o.refused, coalesce(o.uncertain, false) as uncertain
from schedule_runs r join messages m on m.id = r.message_id
left join lateral (
  select bool_or(state in ('pending', 'sending')) as waits, bool_or(state = 'uncertain') as uncertain,
         max(coalesce(error, 'refused')) filter (where state = 'failed') as refused
  from outbox where message_id = r.message_id) o on true
where r.message_id is not null and r.delivered_at is null and r.error is null
  and not coalesce(o.waits, false)
order by r.message_id

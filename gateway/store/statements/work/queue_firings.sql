with firing as (
  select f.*, s.principal_id, s.label
  from unnest($1::bigint[], $2::timestamptz[], $3::int[], $4::timestamptz[], $5::uuid[], $6::uuid[],
              $7::text[], $8::jsonb[], $9::timestamptz[], $10::boolean[])
    as f (schedule, slot, missed, missed_since, task, session, dedupe, input, next, over)
  join schedules s on s.id = f.schedule
  where not exists (select from tasks t where t.id = s.task_id
                    and t.status not in ('completed', 'failed', 'cancelled'))
), run as (
  insert into schedule_runs (schedule_id, slot, principal_id, missed, missed_since, task_id)
  select schedule, slot, principal_id, missed, missed_since, task from firing where slot is not null
  on conflict (schedule_id, slot) do nothing returning task_id
), queued as (
  select f.* from firing f join run on run.task_id = f.task
), session as (
  insert into sessions (id, principal_id, label, unattended)
  select session, principal_id, label, true from queued
), task as (
  insert into tasks (id, master_id, kind, lane, principal_id, session_id, dedupe, input)
  select task, task, 'agent', $12, principal_id, session, dedupe, input from queued
)
update schedules s set task_id = coalesce(q.task, s.task_id), updated_at = now(),
  next_run_at = case when $11 then f.next else s.next_run_at end,
  completed_at = case when $11 and f.over then now() else s.completed_at end
from firing f left join queued q using (schedule) where s.id = f.schedule
returning q.task

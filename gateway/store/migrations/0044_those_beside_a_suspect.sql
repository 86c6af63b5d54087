-- As before (0013), but while a task on probation is tried, those that met one death wait as well. They ran beside it, so
-- that it was never the only suspect, and a process that met it while messages kept coming died without end.
create or replace function claim(p_worker uuid, p_lane text, n int, p_lease interval, p_kinds text[] default null)
returns setof tasks language sql set search_path = supaclaw as $$
  with watched as (
    select count(*) as runs, max(updated_at + make_interval(secs => power(2, least(crashes, 12) - 2))) as until
    from tasks where status = 'running' and crashes >= 2 and worker = p_worker
  ), tried as (
    select t.id from tasks t
    where t.status = 'pending' and t.lane = p_lane and t.run_at <= now() and (p_kinds is null or t.kind = any(p_kinds))
      and t.crashes >= 2 and (t.held_until is null or t.held_until <= now())
      and (t.instance_id is null or t.instance_id = p_worker or not exists (
        select from leases l where l.holder = t.instance_id and l.expires_at > now()))
    order by t.crashes desc, t.priority desc, t.run_at, t.seq
    limit (select case when until > now() then 0 else greatest(1, runs) end from watched)
  ), due as (
    select t.id from tasks t
    where t.status = 'pending' and t.lane = p_lane and t.run_at <= now() and (p_kinds is null or t.kind = any(p_kinds))
      and (t.instance_id is null or t.instance_id = p_worker or not exists (
        select from leases l where l.holder = t.instance_id and l.expires_at > now()))
      and (t.crashes = 0 or t.id in (select id from tried)
           or t.crashes = 1 and not exists (select from tried)
              and not exists (select from watched where until > now()))
    order by t.priority desc, t.run_at, t.seq
    limit n
    for update skip locked
  )
  update tasks t
  set status = 'running', worker = p_worker, token = t.token + 1, attempts = t.attempts + 1,
      lease_until = now() + p_lease, updated_at = now()
  from due where t.id = due.id
  returning t.*
$$;

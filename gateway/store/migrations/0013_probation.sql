-- Being there when the process dies is no fault: it costs no attempt. What two deaths in a row have met is on probation:
-- it runs one by one at first, so that a message that kills is alone when it does. What was alone is held back, to see
-- whether the process lives without it. What was alone three times is given up.

alter table tasks
  add alone int not null default 0,                     -- deaths that met it alone, less those that met its pause
  add held_until timestamptz;                           -- after such a death: not to run before

drop index tasks_suspect;
create index tasks_suspect on tasks (status) where status in ('pending', 'running') and crashes > 0;

-- As before, but for probation: one run at first; as many again each time the youngest has lived for a while, longer for
-- what has met more deaths.
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
      and (t.crashes < 2 or t.id in (select id from tried))
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

create or replace function progress(p_id uuid, p_token bigint) returns void
language plpgsql set search_path = supaclaw as $$
begin
  perform hold(p_id, p_token);
  update tasks set attempts = 1, crashes = 0, alone = 0, held_until = null, updated_at = now()
  where id = p_id and (attempts > 1 or crashes > 0);
end $$;

-- A process died under these of its runs, all of them unless the leases of some last: they go back at once. Alone was the
-- one that had met a death before, if there is one such: it is held, the longer the longer it ran, so that deaths at
-- random, however often, meet the pause sooner than the next try. A death in the pause speaks for it. One that meets
-- nothing known clears everybody of suspicion; else the pause starts over, for there may be two that kill.
create function died(p_worker uuid, p_ids uuid[], p_lease interval, p_error text) returns int
language plpgsql set search_path = supaclaw as $$
declare v_ids uuid[] := coalesce(p_ids, '{}'); v_met boolean; v_alone boolean;
begin
  select coalesce(bool_or(crashes > 0), false),
         count(*) filter (where crashes > 0) = 1 and (max(crashes) > 1 or count(*) = 1)
  into v_met, v_alone from tasks where status = 'running' and worker = p_worker;
  update tasks set status = 'pending', worker = null, lease_until = null, run_at = now(), error = p_error,
    attempts = greatest(0, attempts - 1), crashes = crashes + 1, alone = alone + (v_alone and crashes > 0)::int,
    held_until = case when v_alone and crashes > 0 and alone < 2
      then now() + greatest(1, alone + 1) * ('10 s' + 4 * greatest('0 s', lease_until - p_lease - updated_at)) end,
    updated_at = now()
  where id = any(v_ids);
  update tasks set
    crashes = case when v_met then crashes else 1 end,
    alone = case when held_until > now() then greatest(-1, case when v_met then alone else least(0, alone) end - 1)
                 else alone end,
    held_until = case when v_met and held_until > now() then now() + (held_until - updated_at) end,
    updated_at = now()
  where status = 'pending' and crashes > 0 and not id = any(v_ids);
  return cardinality(v_ids);
end $$;

drop function recover();
create function recover(p_lease interval) returns int
language sql set search_path = supaclaw as $$
  with lost as (
    select id, worker from tasks where status = 'running' and lease_until < now()
    order by depth, id for update skip locked
  )
  select coalesce(sum(died(worker, ids, p_lease, 'lease expired')), 0)::int
  from (select worker, array_agg(id) as ids from lost group by worker) gone
$$;

revoke all on function died, recover from public;
do $$
declare r text;
begin
  for r in select rolname from pg_roles where rolname in ('anon', 'authenticated') loop
    execute format('revoke all on function supaclaw.died, supaclaw.recover from %I', r);
  end loop;
end $$;

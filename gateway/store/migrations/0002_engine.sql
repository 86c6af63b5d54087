-- The engine: tasks is the queue. Every write of a run goes through hold(), every terminal transition through
-- finish() or cancel(), and rows are always locked root to leaf, by (depth, id).

create function told() returns trigger language plpgsql set search_path = supaclaw as $$
begin
  if new.status = 'pending' then
    perform pg_notify('supaclaw_task', '');
  elsif new.status = 'cancelled' then
    perform pg_notify('supaclaw_cancel', new.id::text);
  end if;
  return null;
end $$;
create trigger tasks_told_insert after insert on tasks for each row execute function told();
create trigger tasks_told_update after update of status on tasks for each row
  when (old.status is distinct from new.status) execute function told();

-- Up to n pending tasks of a lane become this worker's. A task of another instance is left alone while that
-- instance's lease lives.
create function claim(p_worker uuid, p_lane text, n int, p_lease interval) returns setof tasks
language sql set search_path = supaclaw as $$
  with due as (
    select t.id from tasks t
    where t.status = 'pending' and t.lane = p_lane and t.run_at <= now()
      and (t.instance_id is null or t.instance_id = p_worker or not exists (
        select from leases l where l.holder = t.instance_id and l.expires_at > now()))
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

-- The fence: locks the row if this run still owns it, else raises SW001.
create function hold(p_id uuid, p_token bigint) returns tasks
language plpgsql set search_path = supaclaw as $$
declare t tasks;
begin
  select * into t from tasks where id = p_id for update;
  if t.id is null or t.status <> 'running' or t.token <> p_token then
    raise exception using errcode = 'SW001', message = format('run lost: task %s is %s', p_id, coalesce(t.status, 'gone'));
  end if;
  return t;
end $$;

-- A step of a run is committed with this: the fence holds, and the attempts start over.
create function progress(p_id uuid, p_token bigint) returns void
language plpgsql set search_path = supaclaw as $$
begin
  perform hold(p_id, p_token);
  update tasks set attempts = 1, updated_at = now() where id = p_id and attempts > 1;
end $$;

-- Ends a task and tells its parent, which wakes when its last child is over. A failed child is a result.
create function settle(p_id uuid, p_status text, p_output jsonb, p_error text) returns void
language plpgsql set search_path = supaclaw as $$
declare v_parent uuid;
begin
  update tasks set status = p_status, output = p_output, error = p_error, worker = null, lease_until = null,
    updated_at = now()
  where id = p_id returning parent_id into v_parent;
  update tasks set open_children = open_children - 1, updated_at = now(),
    attempts = case when open_children = 1 then 0 else attempts end,
    run_at = case when open_children = 1 and status = 'pending_subtask' then now() else run_at end,
    status = case when open_children = 1 and status = 'pending_subtask' then 'pending' else status end
  where id = v_parent;
end $$;

create function finish(p_id uuid, p_token bigint, p_status text, p_output jsonb default null, p_error text default null)
returns void language plpgsql set search_path = supaclaw as $$
begin
  perform from tasks where id = (select parent_id from tasks where id = p_id) for update;
  perform hold(p_id, p_token);
  perform settle(p_id, p_status, p_output, p_error);
end $$;

-- Gives a run up without ending the task: back to pending after a delay, or to wait for its children or a human.
create function suspend(p_id uuid, p_token bigint, p_status text, p_delay interval default '0', p_error text default null)
returns void language plpgsql set search_path = supaclaw as $$
declare t tasks;
begin
  t := hold(p_id, p_token);
  update tasks set worker = null, lease_until = null, run_at = now() + p_delay, updated_at = now(),
    error = coalesce(p_error, error),
    status = case when p_status = 'pending_subtask' and t.open_children = 0 then 'pending' else p_status end
  where id = p_id;
end $$;

-- Cancels a task and everything below it; returns the ids of what was running. It looks again until nothing is left:
-- a run that it waited for may have committed a child that the first look could not see.
create function cancel(p_root uuid) returns setof uuid
language plpgsql set search_path = supaclaw as $$
declare v_id uuid; v_running boolean;
begin
  perform from tasks where id = (select parent_id from tasks where id = p_root) for update;
  loop
    for v_id, v_running in
      with recursive tree as (
        select id, depth from tasks where id = p_root
        union all select c.id, c.depth from tasks c join tree on c.parent_id = tree.id
      )
      select t.id, t.status = 'running' from tasks t join tree using (id)
      where t.status not in ('completed', 'failed', 'cancelled')
      order by t.depth, t.id for update of t
    loop
      perform settle(v_id, 'cancelled', null, null);
      if v_running then return next v_id; end if;
    end loop;
    exit when not found;
  end loop;
end $$;

-- Renews the leases of the runs it is told of and returns those still owned; the rest are lost.
create function heartbeat(p_worker uuid, p_ids uuid[], p_tokens bigint[], p_lease interval) returns setof uuid
language sql set search_path = supaclaw as $$
  with mine as (
    select t.id from tasks t
    join unnest(p_ids, p_tokens) as r (id, token) on r.id = t.id and r.token = t.token
    where t.worker = p_worker and t.status = 'running'
    order by t.depth, t.id for update of t
  )
  update tasks t set lease_until = now() + p_lease from mine where t.id = mine.id returning t.id
$$;

-- Runs whose lease ran out go back with backoff. One that is out of attempts goes back as well, and at once: its next
-- claim sees the count and ends it properly, with whatever its kind owes to a parent or a person.
create function recover() returns int
language sql set search_path = supaclaw as $$
  with lost as (
    select id from tasks where status = 'running' and lease_until < now()
    order by depth, id for update skip locked
  ), back as (
    update tasks t set status = 'pending', worker = null, lease_until = null, error = 'lease expired',
      run_at = now() + make_interval(secs =>
        case when t.attempts < t.max_attempts then least(60, power(2, t.attempts) - 1) else 0 end), updated_at = now()
    from lost where t.id = lost.id returning 1
  )
  select count(*)::int from back
$$;

-- An instance puts back at once what it runs: at its start what it was running when it died, and at its orderly stop
-- what it interrupts, which is no failed attempt (p_refund = 1).
create function release(p_worker uuid, p_refund int default 0) returns int
language sql set search_path = supaclaw as $$
  with own as (
    select id from tasks where status = 'running' and worker = p_worker order by depth, id for update
  ), back as (
    update tasks t set status = 'pending', worker = null, lease_until = null, run_at = now(),
      attempts = greatest(0, t.attempts - p_refund), error = 'the gateway was restarted', updated_at = now()
    from own where t.id = own.id returning 1
  )
  select count(*)::int from back
$$;

do $$
declare f regprocedure; r text;
begin
  for f in select p.oid from pg_proc p join pg_namespace n on n.oid = p.pronamespace where n.nspname = 'supaclaw' loop
    execute format('revoke all on function %s from public', f);
    foreach r in array array['anon', 'authenticated'] loop
      if exists (select from pg_roles where rolname = r) then
        execute format('revoke all on function %s from %I', f, r);
        execute format('revoke all on all tables in schema supaclaw from %I', r);
      end if;
    end loop;
  end loop;
end $$;
revoke all on schema supaclaw from public;

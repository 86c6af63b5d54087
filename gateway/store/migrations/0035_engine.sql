-- The fence stops acts, too: a step renews the lease, so that an act outside may start within the next second.
alter table tasks add column silent_since timestamptz;  -- last sign of life of a process whose lease expired

drop function progress(uuid, bigint);
create function progress(p_id uuid, p_token bigint, p_lease interval default null) returns void
language plpgsql set search_path = supaclaw as $$
begin
  perform hold(p_id, p_token);
  update tasks set lease_until = coalesce(now() + p_lease, lease_until), attempts = 1, crashes = 0, alone = 0,
    held_until = null, updated_at = case when attempts > 1 or crashes > 0 then now() else updated_at end
  where id = p_id and (p_lease is not null or attempts > 1 or crashes > 0);
end $$;

-- As before (0013), but it notes when the process was last heard of: what it began just then may still be under way.
create or replace function recover(p_lease interval) returns int
language plpgsql set search_path = supaclaw as $$
declare v_worker uuid; v_ids uuid[]; v_all int := 0;
begin
  for v_worker, v_ids in
    with lost as (
      select id, worker from tasks where status = 'running' and lease_until < now()
      order by depth, id for update skip locked
    )
    select worker, array_agg(id) from lost group by worker
  loop
    update tasks set silent_since = lease_until - p_lease where id = any(v_ids);
    v_all := v_all + died(v_worker, v_ids, p_lease, 'lease expired');
  end loop;
  return v_all;
end $$;

-- Budgets do not race: a model call that is under way counts with the most that it may cost, for as long as its run lives.
alter table tasks
  add column reserved_token bigint,                     -- of the run that reserved; another one's is void
  add column reserved_usd double precision,
  add column reserved_tokens bigint;                    -- of models without a price

-- Reserves for the next call of a run, or names the budget that is used up. 'busy': others have reserved what it needs; a
-- call that fits in no budget as a whole still gets the rest, alone. Calls of one tree, and of a day and a month, are
-- told one by one; a reservation that a crash forgets is one of a call that has failed.
create function reserve(p_task uuid, p_token bigint, p_usd double precision, p_tokens bigint, p_now timestamptz,
  p_before double precision, p_day_usd double precision, p_month_usd double precision, p_day_tokens bigint)
returns text language plpgsql set search_path = supaclaw as $$
declare
  v_day timestamptz := date_trunc('day', p_now, 'UTC');
  v_since timestamptz := greatest(date_trunc('month', p_now, 'UTC'), v_day - interval '1 day');
  v_key text := 'budget:' || to_char(v_day at time zone 'UTC', 'YYYY-MM-DD') || ':';
  v_month_key text := 'budget:' || to_char(p_now at time zone 'UTC', 'YYYY-MM') || '-01:month';
  v_shared boolean := coalesce(p_day_usd, p_month_usd, p_day_tokens) is not null;
  v_master uuid; v_tree_usd double precision; v_refused text;
begin
  perform set_config('synchronous_commit', 'off', true);
  select m.id, m.budget_usd into v_master, v_tree_usd
  from tasks t join tasks m on m.id = t.master_id where t.id = p_task;
  if v_tree_usd is not null then
    perform from tasks where id = v_master for update;
  end if;
  if v_shared then
    insert into meta (key, value) values ('reserving', 'true') on conflict do nothing;
    perform from meta where key = 'reserving' for update;
  end if;
  perform hold(p_task, p_token);
  with others as (
    select master_id, reserved_usd, reserved_tokens from tasks
    where status = 'running' and reserved_token = token and id <> p_task
  ), used as (
    select coalesce(sum(cost_usd) filter (where created_at >= v_day), 0) as day, coalesce(sum(cost_usd), 0) as month,
           coalesce(sum(tokens_in + tokens_out) filter (where cost_usd = 0 and created_at >= v_day), 0) as tokens
    from task_steps where v_shared and kind = 'model' and created_at >= v_since
  ), budgets (name, most, spent, reserved, asked) as (
    select 'tree_usd', v_tree_usd,
      (select sum(s.cost_usd) from tasks n join task_steps s on s.task_id = n.id
       where v_tree_usd is not null and n.master_id = v_master),
      (select sum(reserved_usd) from others where master_id = v_master), p_usd
    union all
    select 'month_usd', p_month_usd + coalesce((select value::float8 from meta where key = v_month_key), 0),
      p_before + month, (select sum(reserved_usd) from others), p_usd from used
    union all
    select 'day_usd', p_day_usd + coalesce((select value::float8 from meta where key = v_key || 'day'), 0),
      day, (select sum(reserved_usd) from others), p_usd from used
    union all
    select 'day_tokens', p_day_tokens + coalesce((select value::float8 from meta where key = v_key || 'tokens'), 0),
      tokens, (select sum(reserved_tokens) from others), p_tokens from used
  ), refused as (
    select case when spent > 0 and spent >= most then name
                when reserved > 0 and asked > 0 and coalesce(spent, 0) + reserved + asked > most then 'busy' end as name
    from budgets where most is not null
  )
  select name into v_refused from refused where name is not null order by name = 'busy' limit 1;
  if v_refused is null then
    update tasks set reserved_token = p_token, reserved_usd = p_usd, reserved_tokens = p_tokens where id = p_task;
  end if;
  return v_refused;
end $$;

-- A change of status is told only if somebody has to act on it: a commit that notifies takes a lock of the whole server.
drop trigger tasks_told_insert on tasks;
drop trigger tasks_told_update on tasks;
create trigger tasks_told_insert after insert on tasks for each row when (new.status = 'pending') execute function told();
create trigger tasks_told_update after update of status on tasks for each row
  when (new.status = 'pending' and old.status <> 'pending' or new.status = 'cancelled' and old.status = 'running')
  execute function told();

-- As before (0031); what has neither parent nor open children, as most tasks, ends by one update, fence included.
create or replace function finish(p_id uuid, p_token bigint, p_status text, p_output jsonb default null,
  p_error text default null)
returns void language plpgsql set search_path = supaclaw as $$
begin
  update tasks set status = p_status, output = p_output, error = p_error, worker = null, lease_until = null,
    updated_at = now()
  where id = p_id and token = p_token and status = 'running' and open_children = 0 and parent_id is null;
  if found then
    return;
  end if;
  perform from tasks where id = (select parent_id from tasks where id = p_id) for update;
  if (hold(p_id, p_token)).open_children > 0 then
    perform cancel_tree(p_id, false, 'the task above it ended');
  end if;
  perform settle(p_id, p_status, p_output, p_error);
end $$;

-- First tasks of trees, and all that are in none, need no entry.
drop index tasks_by_parent;
create index tasks_by_parent on tasks (parent_id) where parent_id is not null;

-- The parent of a task that is over counts one less, and wakes when it was the last.
create function close_child(p_parent uuid) returns void
language sql set search_path = supaclaw as $$
  update tasks set open_children = open_children - 1, updated_at = now(),
    attempts = case when open_children = 1 then 0 else attempts end,
    run_at = case when open_children = 1 and status = 'pending_subtask' then now() else run_at end,
    status = case when open_children = 1 and status = 'pending_subtask' then 'pending' else status end
  where id = p_parent
$$;

-- As before (0002); what is over has no open children, for they were cancelled before.
create or replace function settle(p_id uuid, p_status text, p_output jsonb, p_error text) returns void
language plpgsql set search_path = supaclaw as $$
declare v_parent uuid;
begin
  update tasks set status = p_status, output = p_output, error = p_error, worker = null, lease_until = null,
    open_children = 0, updated_at = now()
  where id = p_id returning parent_id into v_parent;
  if v_parent is not null then
    perform close_child(v_parent);
  end if;
end $$;

-- Cancels what is open below a task, and with p_itself the task: all at once, for to count down a parent of a thousand one
-- by one takes seconds. It looks again until nothing is left, as cancel() did (0002).
create function cancel_tree(p_root uuid, p_itself boolean, p_error text) returns table (task uuid, ran boolean)
language plpgsql set search_path = supaclaw as $$
begin
  loop
    return query
      with recursive tree as (
        select id from tasks where id = p_root
        union all select c.id from tasks c join tree on c.parent_id = tree.id
      ), open as (
        select t.id, t.status = 'running' as ran from tasks t join tree using (id)
        where t.status not in ('completed', 'failed', 'cancelled') and (p_itself or t.id <> p_root)
        order by t.depth, t.id for update of t
      ), over as (
        update tasks t set status = 'cancelled', output = null, error = p_error, worker = null, lease_until = null,
          open_children = 0, updated_at = now()
        from open where t.id = open.id returning t.id, t.depth, open.ran
      )
      select o.id, o.ran from over o order by o.depth, o.id;
    exit when not found;
  end loop;
end $$;

create or replace function cancel(p_root uuid) returns setof uuid
language plpgsql set search_path = supaclaw as $$
declare v_parent uuid; v_task uuid; v_ran boolean;
begin
  select parent_id into v_parent from tasks where id = p_root;
  perform from tasks where id = v_parent for update;
  for v_task, v_ran in select c.task, c.ran from cancel_tree(p_root, true, null) c loop
    if v_task = p_root and v_parent is not null then
      perform close_child(v_parent);
    end if;
    if v_ran then
      return next v_task;
    end if;
  end loop;
end $$;

drop function cancel_below(uuid);

revoke all on function progress, recover, reserve, close_child, cancel_tree from public;
do $$
declare r text;
begin
  for r in select rolname from pg_roles where rolname in ('anon', 'authenticated') loop
    execute format('revoke all on function supaclaw.progress, supaclaw.recover, supaclaw.reserve, supaclaw.close_child,
      supaclaw.cancel_tree from %I', r);
  end loop;
end $$;

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

revoke all on function progress, recover from public;
do $$
declare r text;
begin
  for r in select rolname from pg_roles where rolname in ('anon', 'authenticated') loop
    execute format('revoke all on function supaclaw.progress, supaclaw.recover from %I', r);
  end loop;
end $$;

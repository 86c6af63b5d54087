-- Trees of tasks: what their nodes keep, and ends that leave no child behind.
alter table tasks add column budget_usd double precision;      -- of a whole tree, in its first task's row; null: none
alter table tasks add column intermediate_data jsonb;          -- what a run saved for itself
alter table reviews add column response jsonb;                 -- the answer to a `review`: {"approved", "comment"}
create index tasks_trees on tasks (principal_id, seq desc)
  where parent_id is null and kind = 'agent' and input ->> 'origin' = 'task';

-- Cancels everything below a task, which the caller holds; as cancel(), it looks again until nothing is left.
create function cancel_below(p_root uuid) returns void
language plpgsql set search_path = supaclaw as $$
declare v_id uuid;
begin
  loop
    for v_id in
      with recursive tree as (
        select id, depth from tasks where parent_id = p_root
        union all select c.id, c.depth from tasks c join tree on c.parent_id = tree.id
      )
      select t.id from tasks t join tree using (id)
      where t.status not in ('completed', 'failed', 'cancelled')
      order by t.depth, t.id for update of t
    loop
      perform settle(v_id, 'cancelled', null, 'the task above it ended');
    end loop;
    exit when not found;
  end loop;
end $$;

-- As before (0002), but a task that ends takes the children with it that are still open.
create or replace function finish(p_id uuid, p_token bigint, p_status text, p_output jsonb default null,
  p_error text default null)
returns void language plpgsql set search_path = supaclaw as $$
begin
  perform from tasks where id = (select parent_id from tasks where id = p_id) for update;
  if (hold(p_id, p_token)).open_children > 0 then
    perform cancel_below(p_id);
  end if;
  perform settle(p_id, p_status, p_output, p_error);
end $$;
revoke all on function cancel_below(uuid) from public;
do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on function supaclaw.cancel_below(uuid) from %I', r);
    end if;
  end loop;
end $$;

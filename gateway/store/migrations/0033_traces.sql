-- Live traces: what a step refers to, and a word to whoever follows it.
alter table task_steps
  add column message_id bigint,                         -- in the transcript: what a model said first, a call, its result
  add column ok boolean,                                -- of a tool run or a review; null elsewhere
  drop constraint task_steps_kind_check,
  add constraint task_steps_kind_check
    check (kind in ('model', 'intent', 'tool', 'hand-off', 'review', 'note')) not valid;
alter table reviews add column reminded_at timestamptz; -- when its person was last told again that it waits

-- A commit that notifies takes a lock of the whole server: only what somebody follows is told. Followers hold a lease
-- with the channel's name; whoever misses the word sees the step at the next look.
create function step_told() returns trigger language plpgsql set search_path = supaclaw as $$
begin
  perform pg_notify(l.name, new.id::text) from leases l
  where l.expires_at > now() and l.name in ('supaclaw:task:' || new.task_id,
    'supaclaw:master:' || (select master_id from tasks where id = new.task_id));
  return null;
end $$;
create trigger task_steps_told after insert on task_steps for each row execute function step_told();
revoke all on function step_told() from public;
do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on function supaclaw.step_told() from %I', r);
    end if;
  end loop;
end $$;

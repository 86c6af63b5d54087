-- Time: schedules, what became of each of their slots, and what other programs sent.

create table schedules (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  name text not null,
  prompt text not null,
  run_at timestamptz,                                   -- once
  cron text,                                            -- recurring; neither: an item of the backlog
  zone text not null default 'UTC',                     -- in which its times are meant and told
  misfire text not null default 'run_once' check (misfire in ('run_once', 'skip', 'catch_up')),
  include_session_history boolean not null default false,
  address_id bigint references addresses,               -- where it was asked for; null: where its person wrote last
  label smallint not null default 0,                    -- trust of the conversation it was asked for in
  origin text not null,                                 -- the channel it was asked for by, or 'cli'
  asked_by text unique,                                 -- the tool call that made it: <task>/<ordinal>
  next_run_at timestamptz,                              -- its next slot; null: there is none
  task_id uuid references tasks,                        -- of its last run
  paused_at timestamptz,
  completed_at timestamptz,                             -- once: its slot is over
  failing_since timestamptz,                            -- its person has been told that it fails
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  check (run_at is null or cron is null)
);
create unique index schedules_by_name on schedules (principal_id, lower(name)) where completed_at is null;
create index schedules_due on schedules (next_run_at) where next_run_at is not null and paused_at is null;

create table schedule_runs (
  schedule_id bigint not null references schedules on delete cascade,
  slot timestamptz not null,                            -- when it was planned for
  principal_id uuid not null references principals,
  missed int not null default 0,                        -- slots that nothing was run for, up to this one
  missed_since timestamptz,                             -- the first of them
  task_id uuid references tasks,                        -- null: nothing was run for this one either
  executed_at timestamptz,                              -- the agent came to an end with it
  produced_at timestamptz,                              -- there was something to tell
  message_id bigint references messages,                -- what was told, in the chat
  delivered_at timestamptz,                             -- the last part of it is there
  error text,                                           -- what went wrong, in one line
  created_at timestamptz not null default now(),
  primary key (schedule_id, slot)
);
create index schedule_runs_by_task on schedule_runs (task_id);
create index schedule_runs_on_their_way on schedule_runs (message_id)
  where message_id is not null and delivered_at is null and error is null;

create table triggers (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  source text not null,
  account text not null,                                -- the credential it came with
  idempotency_key text,
  digest text not null,                                 -- of what was sent with the key
  task_id uuid not null references tasks,
  created_at timestamptz not null default now()
);
create unique index triggers_by_key on triggers (source, idempotency_key);
create index triggers_by_task on triggers (task_id);

create index inbox_by_address on inbox (address_id, id);
create index tasks_failed on tasks (updated_at) where status = 'failed';
create index outbox_troubled on outbox (message_id) where state in ('failed', 'uncertain');
create index tasks_live_by_session on tasks (session_id) where status not in ('completed', 'failed', 'cancelled');
alter table api_tokens add source text;                 -- may trigger for this source only
alter table sessions add name text;                     -- of a conversation that triggers go on with
create unique index sessions_by_name on sessions (principal_id, name) where ended_at is null;

-- Whoever changes when something is due tells the gateway that runs it; the tick itself sets next_run_at alone.
create function schedules_told() returns trigger language plpgsql set search_path = supaclaw as $$
begin
  perform pg_notify('supaclaw_schedule', '');
  return null;
end $$;
revoke all on function schedules_told() from public;
create trigger schedules_told after insert or update of run_at, cron, zone, paused_at on schedules
  for each statement execute function schedules_told();

do $$
declare t text; r text;
begin
  foreach t in array array['schedules', 'schedule_runs', 'triggers'] loop
    execute format('alter table %I enable row level security', t);
    execute format('create policy own on %I to supaclaw_member using (principal_id = '
      '(select nullif(current_setting(''supaclaw.principal'', true), '''')::uuid))', t);
  end loop;
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on all tables in schema supaclaw from %I', r);
      execute format('revoke all on function supaclaw.schedules_told() from %I', r);
    end if;
  end loop;
end $$;
grant select, insert, update, delete on schedules to supaclaw_member;
grant select on schedule_runs to supaclaw_member;

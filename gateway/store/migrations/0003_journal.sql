-- The journal, compaction and the first memories: which file a row's readable copy lies in, how long a message is,
-- what a summary stands for, and what was worth keeping of a conversation. And a queue that finds the run that kills.

create table journals (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  session_id uuid not null references sessions,
  path text not null,                                   -- below the principal's file root; another once it is filed
  summary text not null default '',                     -- one or two lines for memory/INDEX.md
  opened_at timestamptz not null default now(),
  closed_at timestamptz,
  filed_at timestamptz,                                 -- moved from sessions/ to memory/
  unique (principal_id, path)
);
create unique index journals_one_open on journals (session_id) where closed_at is null;
create index journals_to_file on journals (id) where closed_at is not null and filed_at is null;
alter table journals enable row level security;

alter table messages
  add entry_id uuid not null default gen_random_uuid(), -- in the journal; a person's message has it before it is a row
  add journal_id bigint references journals,            -- null until the session's file is opened
  add tokens int,                                       -- estimated once; null: written before this was counted
  add covers int;                                       -- summary: the last place of the transcript it stands for
alter table messages add check ((covers is null) = (kind <> 'summary')) not valid;
create index messages_by_journal on messages (journal_id, id) where journal_id is not null;
create index messages_unfiled on messages (session_id) where journal_id is null;
create index messages_summaries on messages (session_id, seq) where kind = 'summary';

alter table inbox
  add entry_id uuid not null default gen_random_uuid(),
  add journal_id bigint references journals;
create unique index inbox_by_entry on inbox (entry_id);
create index inbox_by_journal on inbox (journal_id, id) where journal_id is not null and kind <> 'message';

create table memories (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  text text not null,
  label smallint not null,                              -- the highest trust label of what it was learned from
  origin text not null,                                 -- who wrote it down: 'compaction'
  session_id uuid not null references sessions,         -- provenance: from which conversation,
  first_seq int not null,                               -- and which stretch of it
  last_seq int not null,
  created_at timestamptz not null default now()
);
create unique index memories_once on memories (principal_id, md5(text));
alter table memories enable row level security;

alter table tasks add crashes int not null default 0;   -- how often in a row the process died under it
create index tasks_suspect on tasks (lane) where status = 'pending' and crashes >= 2;

-- As before; but what two deaths in a row have met runs alone for five seconds, so that only the culprit dies again and
-- its neighbours keep their last attempt.
create or replace function claim(p_worker uuid, p_lane text, n int, p_lease interval) returns setof tasks
language sql set search_path = supaclaw as $$
  with alone as (
    select t.id from tasks t
    where t.status = 'pending' and t.lane = p_lane and t.run_at <= now()
      and t.crashes >= 2 and t.attempts < t.max_attempts
      and (t.instance_id is null or t.instance_id = p_worker or not exists (
        select from leases l where l.holder = t.instance_id and l.expires_at > now()))
      and not exists (
        select from tasks r where r.status = 'running' and r.worker = p_worker and r.crashes >= 2
          and r.updated_at > now() - interval '5 seconds')
    order by t.priority desc, t.run_at, t.seq
    limit 1
  ), due as (
    select t.id from tasks t
    where t.status = 'pending' and t.lane = p_lane and t.run_at <= now()
      and (t.instance_id is null or t.instance_id = p_worker or not exists (
        select from leases l where l.holder = t.instance_id and l.expires_at > now()))
      and (t.crashes < 2 or t.attempts >= t.max_attempts or t.id = (select id from alone))
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
  update tasks set attempts = 1, crashes = 0, updated_at = now() where id = p_id and (attempts > 1 or crashes > 0);
end $$;

create or replace function recover() returns int
language sql set search_path = supaclaw as $$
  with lost as (
    select id from tasks where status = 'running' and lease_until < now()
    order by depth, id for update skip locked
  ), back as (
    update tasks t set status = 'pending', worker = null, lease_until = null, error = 'lease expired',
      crashes = t.crashes + 1, run_at = now() + make_interval(secs =>
        case when t.attempts < t.max_attempts then least(60, power(2, t.attempts) - 1) else 0 end), updated_at = now()
    from lost where t.id = lost.id returning 1
  )
  select count(*)::int from back
$$;

-- An instance puts back what it runs, but for what it knows of (p_known): at its start what it was running when it
-- died; at its orderly stop what it interrupts, and after a lost reply what it claimed without learning of it, neither
-- of which is a failed attempt (p_refund = 1).
drop function release(uuid, int);
create function release(p_worker uuid, p_refund int default 0, p_known uuid[] default '{}') returns int
language sql set search_path = supaclaw as $$
  with own as (
    select id from tasks where status = 'running' and worker = p_worker and not id = any(p_known)
    order by depth, id for update
  ), back as (
    update tasks t set status = 'pending', worker = null, lease_until = null, run_at = now(),
      attempts = greatest(0, t.attempts - p_refund), crashes = t.crashes + 1 - p_refund,
      error = 'the gateway was restarted', updated_at = now()
    from own where t.id = own.id returning 1
  )
  select count(*)::int from back
$$;

do $$
declare r text;
begin
  revoke all on function release(uuid, int, uuid[]) from public;
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on function supaclaw.release(uuid, int, uuid[]) from %I', r);
      execute format('revoke all on all tables in schema supaclaw from %I', r);
    end if;
  end loop;
end $$;

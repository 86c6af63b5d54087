-- What each turn asks costs the same in the first week and after years; and a worker claims only what it can run.

create index messages_unread on messages (session_id, id) where seq is null;
create index messages_asked on messages (task_id) where kind = 'user' and task_id is not null;
create index attachments_newest on attachments (session_id, created_at desc, place desc) where state = 'stored';
drop index attachments_by_session;
create index inbox_by_key on inbox (account, platform_id) where channel = 'api';

alter table sessions add spoken_at timestamptz;         -- when something was last said in it
update sessions s set spoken_at = coalesce((
  select created_at from messages where session_id = s.id and seq is not null order by seq desc limit 1), s.started_at);
alter table sessions alter spoken_at set default now(), alter spoken_at set not null;
create index sessions_by_spoken on sessions (spoken_at);
grant update (spoken_at) on sessions to supaclaw_member;

-- As before; but of these kinds only: what another release queued waits for a worker that knows it.
drop function claim(uuid, text, int, interval);
create function claim(p_worker uuid, p_lane text, n int, p_lease interval, p_kinds text[] default null)
returns setof tasks language sql set search_path = supaclaw as $$
  with alone as (
    select t.id from tasks t
    where t.status = 'pending' and t.lane = p_lane and t.run_at <= now() and (p_kinds is null or t.kind = any(p_kinds))
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
    where t.status = 'pending' and t.lane = p_lane and t.run_at <= now() and (p_kinds is null or t.kind = any(p_kinds))
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

do $$
declare r text;
begin
  revoke all on function claim(uuid, text, int, interval, text[]) from public;
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on function supaclaw.claim(uuid, text, int, interval, text[]) from %I', r);
    end if;
  end loop;
end $$;

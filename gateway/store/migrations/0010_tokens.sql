-- A token is not the owner: what programs said before is known at best, what they claimed that others said is
-- untrusted, and so are the conversations, memories and schedules that came of it. Joining an account takes two steps.

alter table api_tokens add as_owner boolean not null default false;  -- what it sends counts as said by the owner
update api_tokens set as_owner = true where kind = 'cookie';
alter table inbox add as_owner boolean not null default true;        -- may act for the owner
update inbox set as_owner = false
where handled_at is null and (channel = 'api' or (channel = 'terminal' and account <> 'local'));
alter table links                                     -- null: nobody has given the code yet; else the account that did
  add channel text, add account text, add chat text, add thread text, add sender text, add name text;

update messages set label = 2
where origin = 'earlier' and label < 2 and (kind <> 'user' or text like '(Instructions from the client)%');
update messages set label = 1 where origin in ('api', 'earlier') and label < 1;
update messages m set label = 1 from addresses a
where a.id = m.address_id and m.origin = 'terminal' and m.label < 1 and a.account <> 'local';

-- The conversations that this concerns, those of the schedules made in them included, each with its lowest trust.
create table raised as
with recursive said as (
  select session_id, label from messages where origin in ('api', 'earlier')
  union select m.session_id, m.label from messages m join addresses a on a.id = m.address_id
    where m.origin = 'terminal' and a.account <> 'local'
  union select session_id, 1::smallint from addresses
    where channel = 'api' or (channel = 'terminal' and account <> 'local')
), reached as (
  select * from said
  union select run.session_id, r.label
    from reached r join tasks asked on asked.session_id = r.session_id
    join schedules s on split_part(s.asked_by, '/', 1) = asked.id::text
    join schedule_runs f on f.schedule_id = s.id join tasks run on run.id = f.task_id
)
select session_id, max(label) as label from reached where session_id is not null group by session_id;

update sessions s set label = r.label from raised r where s.id = r.session_id and s.label < r.label;
update messages m set label = s.label from raised r join sessions s on s.id = r.session_id
where m.session_id = s.id and m.kind <> 'user' and m.origin <> 'earlier' and m.label < s.label;
update memories m set label = r.label from raised r where m.session_id = r.session_id and m.label < r.label;
update tasks t set input = jsonb_set(t.input, '{label}', to_jsonb(r.label)) from raised r
where t.session_id = r.session_id and t.kind = 'agent' and t.status not in ('completed', 'failed', 'cancelled')
  and coalesce((t.input ->> 'label')::int, 0) < r.label;

with mine as (
  select s.id, coalesce(r.label, 1::smallint) as label from schedules s
  left join tasks t on t.id::text = split_part(s.asked_by, '/', 1)
  left join raised r on r.session_id = t.session_id
  where s.origin = 'api' or r.session_id is not null
), changed as (
  update schedules s set label = greatest(s.label, mine.label), updated_at = now(),
    paused_at = case when s.completed_at is null then coalesce(s.paused_at, now()) else s.paused_at end
  from mine, schedules before where mine.id = s.id and before.id = s.id
  returning s.*, before.paused_at is null and before.completed_at is null as ran
)
insert into reviews (kind, principal_id, asked_id, tool, arguments, digest, preview, label)
select 'approval', principal_id, principal_id, 'resume_schedule', jsonb_build_object('schedule', id),
  encode(sha256(convert_to('["resume_schedule",{"schedule":' || id || '},""]', 'UTF8')), 'hex'),
  'Resume the schedule "' || name || '". A program set it up with a token, so it is paused until you say yes.' || E'\n'
    || 'When: ' || coalesce('cron ' || cron || ' (' || zone || ')',
                            'once, ' || to_char(run_at at time zone 'UTC', 'YYYY-MM-DD HH24:MI') || ' UTC',
                            'whenever it is asked for')
    || E'\nPrompt: ' || prompt,
  label
from changed where ran;
drop table raised;

-- A program's chat that was joined with a person's has a conversation of its own again.
do $$
declare v_at addresses; v_session uuid;
begin
  for v_at in select a.* from addresses a
    where (a.channel in ('api', 'terminal') and a.account <> 'local') and exists (
      select from addresses b where b.session_id = a.session_id
        and not (b.channel in ('api', 'terminal') and b.account <> 'local'))
  loop
    v_session := gen_random_uuid();
    insert into sessions (id, principal_id, label) values (v_session, v_at.principal_id, 1);
    update addresses set session_id = v_session where id = v_at.id;
  end loop;
end $$;

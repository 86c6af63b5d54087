-- Conversations as their person lists them: under a title, chats apart from what ran by itself.

alter table sessions
  add title text,                                       -- by its person; null: by rule, from what was said
  add unattended boolean not null default false;        -- of a schedule, a trigger or a heartbeat: nobody's chat
update sessions s set unattended = true
where name is not null or id in (select session_id from tasks where kind in ('agent', 'heartbeat')) or (
  select origin from messages where session_id = s.id and kind = 'user' and seq is not null order by seq limit 1)
  in ('schedule', 'trigger', 'heartbeat');
create index sessions_listed on sessions (principal_id, unattended, spoken_at);
create index memories_summaries on memories (session_id) where kind = 'summary';

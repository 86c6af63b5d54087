-- What a new session is told of what came before it.

alter table sessions add ended_by_person boolean not null default false;  -- a chat, no run
create index sessions_chats on sessions (principal_id, ended_at) where ended_by_person;

create index memories_weighty on memories (principal_id, importance desc, id desc)
  where kind = 'memory' and superseded_at is null and forgotten_at is null;
create index memories_standing on memories (principal_id, importance desc, id desc)
  where kind = 'memory' and superseded_at is null and forgotten_at is null
    and (pinned or category = 'preference' or tags && '{core,preference}');

-- Files in a conversation: what came with a message or was sent with one, and what was read out of it.

alter table files
  add text_path text not null default '',               -- the assembled text, below the principal's file root
  add view_path text not null default '',               -- a picture of it, small enough for a model
  add pages int not null default 0,
  add problem text not null default '',                 -- why there is no text, for people
  add derived_at timestamptz;                           -- when it was last read; null: not yet
create index files_by_content on files (principal_id, sha256);

alter table messages add album text;                    -- parts of one message that the platform cut up
create index messages_by_album on messages (address_id, album) where album is not null and seq is null;

create table attachments (
  id uuid primary key default gen_random_uuid(),
  principal_id uuid not null references principals,
  session_id uuid not null references sessions,         -- its message's
  message_id bigint not null references messages,
  place int not null,
  channel text not null,                                -- by which its bytes are fetched
  ref text not null,                                    -- means something to that channel only
  name text not null,
  mime text not null,                                   -- as claimed
  size bigint,                                          -- as claimed, in bytes
  state text not null default 'waiting' check (state in ('waiting', 'stored', 'failed')),
  file_id uuid references files,
  error text not null default '',                       -- why it could not be fetched, for people
  created_at timestamptz not null default now(),
  unique (message_id, place),
  check ((state = 'stored') = (file_id is not null))
);
create index attachments_by_session on attachments (session_id);
create index attachments_by_file on attachments (file_id) where file_id is not null;
alter table attachments enable row level security;

-- What a turn, a person and a list are told of a file.
create view attached with (security_invoker = true) as
select a.id as attachment_id, a.message_id, a.place, a.state, f.id,
       coalesce(nullif(a.name, ''), substring(f.path from '[^/]*$'), 'file') as name,
       coalesce(f.mime, a.mime) as mime, coalesce(f.size, a.size, 0) as size, coalesce(f.path, '') as path,
       coalesce(f.text_path, '') as text_path, coalesce(f.view_path, '') as view_path, coalesce(f.pages, 0) as pages,
       coalesce(f.description, '') as description, coalesce(f.problem, a.error) as problem,
       a.state = 'waiting' as coming, f.derived_at is null and f.origin <> 'agent' as unread
from attachments a left join files f on f.id = a.file_id;

alter table outbox
  add file_id uuid references files,                    -- sent with this part
  add buttons jsonb not null default '[]',              -- [{"label", "value"}]
  add reply_to text;                                    -- the platform's id of the message it answers, in a group

alter table inbox add files int not null default 0;     -- came with a command, and were not taken

do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on all tables in schema supaclaw from %I', r);
    end if;
  end loop;
end $$;

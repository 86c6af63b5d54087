-- The schema of SupaClaw in one file, for reading. Nothing runs it: databases are set up and upgraded by the files in
-- migrations/, which never change once released. tests/store/test_schema_file.py loads this file into an empty database
-- and compares it with a migrated one, so a new migration changes this file in the same commit.
--
-- A database may also have memory_vectors (one vector per memory and model) and its indexes
-- memory_vectors_near_<model>: they need the extension `vector`, so memory/vectors.py makes them at run time.
--
-- Terms: a principal is a person; a label is a degree of trust (0 owner, 1 known, 2 untrusted); `principal_id` says
-- whose row it is, which the policies at the end rely on.

create schema supaclaw;
revoke all on schema supaclaw from public;
set search_path = supaclaw, public;


-- The gateway itself -------------------------------------------------------------------------------------------------

create table migrations (
  number int primary key,
  name text not null,
  sha256 text not null,                                 -- of the file; a changed one is refused
  applied_at timestamptz not null default now(),
  compatible_from int not null default 0                -- the schema of the oldest program that can work after it
);

-- Small facts about the whole gateway, such as raised budgets and the last heartbeat.
create table meta (
  key text primary key,
  value jsonb not null
);

-- The processes that work on this database. A running one holds a lease by its id, and one for each open channel.
create table instances (
  id uuid primary key,
  name text not null,                                   -- of its machine, for people
  kind text not null check (kind in ('gateway', 'worker')),
  started_at timestamptz not null default now(),
  stopped_at timestamptz,                               -- orderly stop; null while it runs, or if it died
  schema int not null default 0                         -- the newest that its program knows; 0: it doesn't say
);

create table leases (
  -- 'gateway', 'instance <id>', a channel, or a notification that somebody follows:
  name text primary key,
  holder uuid not null,
  expires_at timestamptz not null
);

-- Which instance's machine has the only copy of some files: the workspace, or a channel's state.
create table homes (
  thing text primary key,
  instance_id uuid not null references instances on delete cascade
);

-- State of a channel, here so that any machine can take the channel over.
create table channel_facts (
  channel text not null,
  name text not null,
  value text not null,
  saved_at timestamptz not null default clock_timestamp(),  -- the oldest are dropped at the limit
  primary key (channel, name)
);

-- Parts of requests that a model doesn't take: it is asked without them for a day, and the owner was told at the first.
-- The source is a digest of its address, key and name.
create table model_refusals (
  source text not null,
  part text not null,
  model text not null,
  refused_at timestamptz not null,
  primary key (source, part)
);

-- Size of each table on disk, once a day.
create table table_sizes (
  day date not null,
  name text not null,
  bytes bigint not null,
  primary key (day, name)
);


-- People -------------------------------------------------------------------------------------------------------------

create table principals (
  id uuid primary key,
  role text not null check (role in ('owner', 'member')),
  name text not null,
  identities text[] not null default '{}',              -- accounts: '<channel>:<platform id>'
  created_at timestamptz not null default now(),
  unconfirmed text[] not null default '{}',             -- owner's accounts that the owner has yet to confirm
  zone_offered_at timestamptz,                          -- a time zone is offered once
  recordings_explained_at timestamptz                   -- how recordings are heard is told once
);
create unique index principals_one_owner on principals (role) where role = 'owner';

-- Requests of strangers for access.
create table pairings (
  id bigint generated always as identity primary key,
  principal_id uuid references principals,              -- the member they became; null until approved
  channel text not null,                                -- where they asked, and from which account
  account text not null,
  chat text not null,
  thread text not null,
  sender text not null,
  name text not null,
  code text not null,
  state text not null default 'open' check (state in ('open', 'approved', 'denied')),
  asked_at timestamptz not null default now(),
  expires_at timestamptz not null default (now() + '00:10:00'),
  decided_at timestamptz,
  unique (channel, sender),
  check (state <> 'approved' or principal_id is not null)
);
create unique index pairings_by_code on pairings (code) where state = 'open';

-- Wrong codes, counted by sender.
create table guesses (
  who text primary key,
  wrong int not null default 1,
  until timestamptz not null default (now() + '00:10:00')
);

create table api_tokens (
  id uuid default gen_random_uuid() primary key,
  principal_id uuid not null references principals,
  name text not null,
  kind text not null default 'bearer' check (kind in ('bearer', 'cookie')),
  sha256 text not null unique,
  scopes text[] not null,
  created_at timestamptz not null default now(),
  last_used_at timestamptz,
  expires_at timestamptz,
  revoked_at timestamptz,
  source text,                                          -- the only source it may trigger for; null: any
  as_owner boolean not null default false,              -- what it sends counts as said by the owner
  agent text check (agent <> 'default'),                -- whose memories it may read and change
  shared boolean not null default false                 -- may also read the memories of 'default'
);
create unique index api_tokens_by_name on api_tokens (name)
  where kind = 'bearer' and revoked_at is null;

-- Tells running gateways that access changed. New requests change nobody's access, nor does a new member with one
-- account.
create function people_told() returns trigger language plpgsql set search_path = supaclaw as $$
begin
  perform pg_notify('supaclaw_people', '');
  return null;
end $$;
create trigger principals_told after update on principals
  for each row when (old.identities <> new.identities) execute function people_told();
create trigger pairings_told after update on pairings
  for each row when (old.state <> new.state and ('approved' = old.state or 'approved' = new.state))
  execute function people_told();
create trigger api_tokens_told after update on api_tokens
  for each row when (old.revoked_at is distinct from new.revoked_at or old.expires_at is distinct from new.expires_at
    or old.scopes <> new.scopes or old.shared <> new.shared) execute function people_told();


-- Conversations ------------------------------------------------------------------------------------------------------

create table sessions (
  id uuid primary key,
  principal_id uuid not null references principals,
  label smallint not null default 0,                    -- the least trusted label of its content; never falls
  next_seq int not null default 1,
  digest text not null default '',                      -- of the spoken texts so far: how /v1 finds its session
  started_at timestamptz not null default now(),
  ended_at timestamptz,
  name text,                                            -- of a conversation that triggers continue
  spoken_at timestamptz not null default now(),         -- the last message
  agent text not null default 'default',                -- 'default', or a program's
  ended_by_person boolean not null default false,       -- a chat, not a run
  title text,                                           -- given by its person; null: derived from the first words
  -- Of a schedule, a trigger or a heartbeat, so in no list of chats:
  unattended boolean not null default false,
  parent_id uuid,                                       -- a branch reads the past of this session, of the same person,
  parent_seq int,                                       -- up to this place; its own places come after it
  pinned_at timestamptz,                                -- by its person: first in the list of chats
  archived_at timestamptz,                              -- apart from the others
  deleted_at timestamptz,                               -- in no list and no search
  check ((parent_id is null) = (parent_seq is null))
);
create index sessions_by_digest on sessions (principal_id, digest)
  where digest <> '' and ended_at is null;
create unique index sessions_by_name on sessions (principal_id, name) where ended_at is null;
create index sessions_by_spoken on sessions (spoken_at);
create index sessions_chats on sessions (principal_id, ended_at) where ended_by_person;
create index sessions_listed on sessions (principal_id, unattended, spoken_at);
create unique index sessions_of_person on sessions (id, principal_id);
create index sessions_pinned on sessions (principal_id) where pinned_at is not null;
create index sessions_branches on sessions (parent_id) where parent_id is not null;
alter table sessions add foreign key (parent_id, principal_id) references sessions (id, principal_id);

-- A chat on a channel, and the session that it is in now.
create table addresses (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  channel text not null,
  account text not null,
  chat text not null,
  thread text not null default '',
  private boolean not null,
  session_id uuid not null references sessions,
  created_at timestamptz not null default now(),
  model text,                                           -- chosen for this chat by /model; null: as configured
  thinking text,                                        -- by /think: off, low, medium, high; null: as configured
  model_until timestamptz,                              -- when that choice ends; null: it doesn't by itself
  voice text,                                           -- by /voice, as voice.reply; null: as configured
  unique (channel, account, chat, thread)
);
create index addresses_by_session on addresses (session_id);

-- A code that joins another account to a person.
create table links (
  code text primary key,
  principal_id uuid not null references principals,
  address_id bigint not null references addresses,      -- its session is the one to join
  expires_at timestamptz not null default (now() + '00:10:00'),
  channel text,                                         -- the account that gave the code; null before
  account text,
  chat text,
  thread text,
  sender text,
  name text
);
create index links_by_address on links (address_id);

-- The readable files of a conversation.
create table journals (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  session_id uuid not null references sessions,
  path text not null,                                   -- below the principal's file root; changes when it is filed
  summary text not null default '',                     -- one or two lines for memory/INDEX.md
  opened_at timestamptz not null default now(),
  closed_at timestamptz,
  filed_at timestamptz,                                 -- moved from sessions/ to memory/
  unique (principal_id, path)
);
create unique index journals_one_open on journals (session_id) where closed_at is null;
create index journals_to_file on journals (id) where closed_at is not null and filed_at is null;

create table messages (
  id bigint generated always as identity primary key,
  session_id uuid not null references sessions,
  principal_id uuid not null references principals,
  address_id bigint references addresses,
  seq int,                                              -- place in the transcript; null while unread
  kind text not null check (kind in ('user', 'assistant', 'tool_intent', 'tool_result', 'summary', 'notice')),
  text text not null,
  label smallint not null,
  origin text not null,                                 -- the channel it came by, or 'gateway'
  sender text not null default '',
  platform_id text,
  sent_at timestamptz not null default now(),
  solo boolean not null default false,                  -- gets a turn of its own
  final boolean not null default true,                  -- assistant: the answer, not words before a tool call
  call_id text,                                         -- tool_intent, tool_result
  tool text,
  task_id uuid,
  ordinal int,                                          -- tool call: its key within the task
  answered_by bigint references messages,
  closed_at timestamptz,                                -- user: will not be answered (/new, /stop)
  created_at timestamptz not null default now(),
  entry_id uuid not null default gen_random_uuid(),     -- in the journal; a person's message has it from the inbox
  journal_id bigint references journals,                -- null until the session's file is opened
  tokens int,                                           -- an estimate; null in old rows
  covers int,                                           -- summary: the last place of the transcript that it stands for
  album text,                                           -- joins the parts into which the platform cut one message
  model text,                                           -- asked first for the answer; null: the configured one
  remembered bigint[] not null default '{}',            -- memories that the model was shown for this answer
  unasked boolean,                                      -- tool_intent: sent or changed something without a question
  withdrawn text check (withdrawn in ('edited', 'deleted')),  -- user: no longer its person's word, and in no prompt
  plan_step int,                                        -- tool_intent: the step of its run's plan that it fills, from 1
  check (kind = 'user' or seq is not null),
  check ((covers is null) = (kind <> 'summary'))
);
create unique index messages_in_order on messages (session_id, seq) where seq is not null;
create index messages_open on messages (session_id, id)
  where kind = 'user' and answered_by is null and closed_at is null;
create unique index messages_tool_call on messages (task_id, ordinal, kind) where ordinal is not null;
create index messages_by_platform on messages (address_id, platform_id) where platform_id is not null;
create index messages_answers on messages (answered_by) where answered_by is not null;
create index messages_by_journal on messages (journal_id, id) where journal_id is not null;
create index messages_summaries on messages (session_id, seq) where kind = 'summary';
create index messages_by_album on messages (address_id, album) where album is not null and seq is null;
create index messages_unread on messages (session_id, id) where seq is null;
create index messages_asked on messages (task_id) where kind = 'user' and task_id is not null;
create unique index messages_imported on messages (session_id, platform_id) where origin like 'import:%';
create index messages_unfiled on messages (session_id)
  where journal_id is null and origin not like 'import:%';

-- Fields of a model's reply that only its provider understands and may want back: one row for a reply, with the
-- answer or its first call. The source is a digest of provider, address, key and model; nobody else gets them.
create table provider_fields (
  message_id bigint primary key references messages on delete cascade,
  principal_id uuid not null references principals,
  label smallint not null,
  source text not null,
  message text not null,                                -- a JSON object, as are the next
  calls text[] not null                                 -- of the reply's calls, in order
);

-- What a model thought before an answer or a call, as far as its provider shows that: for people, never for a prompt.
-- It has the label of its run, and a retention of its own.
create table thoughts (
  message_id bigint primary key references messages on delete cascade,
  principal_id uuid not null references principals,
  label smallint not null,
  text text not null,                                   -- "" if the provider keeps it to itself
  tokens int not null,
  ms int not null,
  created_at timestamptz not null default now()
);
create index thoughts_by_time on thoughts (created_at);

-- The sessions that make up the transcript of one: itself and its ancestors, each up to a place (`until`) and as it was
-- at a time (`at`, when the branch began). No place is in two of them, so together, in the order of seq, they are one
-- transcript. A summary counts if it was there at that time and covers nothing behind that place. Branches are at most
-- 32 deep.
create function past(p_session uuid) returns table (id uuid, until int, at timestamptz, depth int)
language sql stable rows 2 as $$
  with recursive back as (
    select s.id, s.parent_id, s.parent_seq, s.started_at, 2147483647 as until, 'infinity'::timestamptz as at, 0 as depth
    from supaclaw.sessions s where s.id = p_session
    union all
    select s.id, s.parent_id, s.parent_seq, s.started_at, b.parent_seq, b.started_at, b.depth + 1
    from back b join supaclaw.sessions s on s.id = b.parent_id where b.depth < 32
  ) select id, until, at, depth from back
$$;


-- Files --------------------------------------------------------------------------------------------------------------

create table files (
  id uuid default gen_random_uuid() primary key,
  principal_id uuid not null references principals,
  path text not null,                                   -- below the principal's file root, as are the next two paths
  mime text not null,
  size bigint not null,
  sha256 text not null,
  label smallint not null default 0,
  origin text not null default 'agent',
  description text not null default '',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  text_path text not null default '',                   -- its extracted text
  view_path text not null default '',                   -- its picture, small enough for a model
  pages int not null default 0,
  problem text not null default '',                     -- why there is no text, for people
  derived_at timestamptz,                               -- text and picture were made, or can't be
  unique (principal_id, path)
);
create index files_by_content on files (principal_id, sha256);

create table attachments (
  id uuid default gen_random_uuid() primary key,
  principal_id uuid not null references principals,
  session_id uuid not null references sessions,
  message_id bigint not null references messages,
  place int not null,
  channel text not null,                                -- which fetches it
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
create index attachments_by_file on attachments (file_id) where file_id is not null;
create index attachments_newest on attachments (session_id, created_at desc, place desc)
  where state = 'stored';

-- Attachments with what is known of their files.
create view attached with (security_invoker = true) as
select a.id as attachment_id, a.message_id, a.place, a.state, f.id,
       coalesce(nullif(a.name, ''), substring(f.path from '[^/]*$'), 'file') as name,
       coalesce(f.mime, a.mime) as mime, coalesce(f.size, a.size, 0) as size, coalesce(f.path, '') as path,
       coalesce(f.text_path, '') as text_path, coalesce(f.view_path, '') as view_path, coalesce(f.pages, 0) as pages,
       coalesce(f.description, '') as description, coalesce(f.problem, a.error) as problem,
       a.state = 'waiting' as coming, f.derived_at is null and f.origin <> 'agent' as unread
from attachments a left join files f on f.id = a.file_id;

-- The label of every content that a workspace held; an unlisted content is untrusted.
create table contents (
  principal_id uuid not null references principals,
  sha256 text not null,
  label smallint not null,                              -- the most trusted that it was written or vouched for with
  source text not null,                                 -- 'agent', 'upload', 'template', 'owner', 'restore', 'before';
                                                        -- of the row 'changed': another at each less trusted change
  created_at timestamptz not null default now(),
  primary key (principal_id, sha256)
);

-- The workspace on an object store: the content of each path. Versions are compared and set here, since not every store
-- has conditional writes. A row outlives its file: a path without a row was never synced, so it is not deleted locally.
create table synced_files (
  principal_id uuid not null references principals,
  place text not null,                                  -- the store, its bucket and the prefix in it
  path text not null,
  sha256 text,                                          -- the object's name; null: deleted
  size bigint not null default 0,
  executable boolean not null default false,
  version bigint not null default 1,                    -- +1 at each change
  changed_at timestamptz not null default now(),
  primary key (principal_id, place, path)
);
create index synced_files_by_content on synced_files (place, sha256);

-- Objects deleted from the store because no path has them.
create table swept_objects (
  place text not null,
  sha256 text not null,
  -- Null: about to be deleted; after it, copies stored earlier are gone too:
  gone_at timestamptz,
  primary key (place, sha256)
);

-- Commands under way that may write untrusted content, by the process that runs them: meanwhile unlisted contents stay
-- untrusted. Several processes may work on one folder; the end of one's command doesn't end another's.
create table running_commands (
  principal_id uuid not null references principals,
  instance_id uuid not null,
  primary key (principal_id, instance_id)
);


-- Delivery -----------------------------------------------------------------------------------------------------------

-- Everything that channels brought, once per platform id.
create table inbox (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  address_id bigint not null references addresses,
  channel text not null,
  account text not null,
  chat text not null,
  platform_id text not null,
  kind text not null check (kind in ('message', 'edit', 'command', 'button')),
  text text not null default '',                        -- of commands and edits; a message's text is in `messages`
  platform_time timestamptz not null,
  received_at timestamptz not null default now(),
  message_id bigint references messages,                -- the message it became, or the notice that answers a command
  handled_at timestamptz,
  entry_id uuid not null default gen_random_uuid(),     -- in the journal
  journal_id bigint references journals,
  files int not null default 0,                         -- came with a command and were not taken
  sender text not null default '',                      -- '<channel>:<platform id>'; '' may decide nothing
  as_owner boolean not null default true,               -- may act for the owner
  -- What an API client sent along, above all its own tools, as JSON:
  client text,
  unique (channel, account, chat, platform_id)
);
create index inbox_unhandled on inbox (id) where handled_at is null;
create unique index inbox_by_entry on inbox (entry_id);
create index inbox_by_journal on inbox (journal_id, id)
  where journal_id is not null and kind <> 'message';
create index inbox_by_address on inbox (address_id, id);
create index inbox_by_key on inbox (account, platform_id) where channel = 'api';

-- What is to be sent, in parts that fit the platform. A crash leaves 'sending': then the part may have arrived.
create table outbox (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  address_id bigint not null references addresses,
  message_id bigint not null references messages,
  part int not null default 0,
  text text not null,
  notice boolean not null default false,                -- about delivery itself: its failure gets no notice
  state text not null default 'pending' check (state in ('pending', 'sending', 'sent', 'uncertain', 'failed')),
  attempts int not null default 0,
  run_at timestamptz not null default now(),
  platform_id text,
  error text,
  created_at timestamptz not null default now(),
  sending_at timestamptz,
  sent_at timestamptz,
  file_id uuid references files,                        -- sent with this part
  buttons jsonb not null default '[]',                  -- [{"label", "value"}]
  reply_to text,                                        -- the platform's id of the message that it answers, in a group
  unique (message_id, part)
);
create index outbox_open on outbox (address_id, id)
  where state in ('pending', 'sending');
create index outbox_by_address on outbox (address_id, id);
create index outbox_troubled on outbox (message_id)
  where state in ('failed', 'uncertain');


-- Work ---------------------------------------------------------------------------------------------------------------

-- The queue. A tree of tasks shares `master_id`, the id of its first task. A worker claims a task for the time of a
-- lease; each claim raises `token`, and a write under an older token is refused.
create table tasks (
  id uuid primary key,
  master_id uuid not null,
  parent_id uuid references tasks on delete cascade,
  depth int not null default 0,
  kind text not null,
  lane text not null,
  principal_id uuid not null references principals,
  session_id uuid references sessions,
  instance_id uuid,                                     -- the gateway that has the address; null: any may run it
  agent text not null default 'default',
  status text not null default 'pending'
    check (status in
      ('pending', 'running', 'pending_subtask', 'needs_human_review', 'completed', 'failed', 'cancelled')),
  input jsonb not null default '{}',
  output jsonb,
  error text,
  priority smallint not null default 0,
  run_at timestamptz not null default now(),
  seq bigint generated always as identity,
  dedupe text,                                          -- unique among live tasks
  attempts int not null default 0,
  max_attempts int not null default 3,
  open_children int not null default 0,
  worker uuid,
  token bigint not null default 0,
  lease_until timestamptz,                              -- in no index, so that a renewal stays a heap-only update
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  intermediate_data jsonb,                              -- saved by a run for itself
  storage_paths text[] not null default '{}',           -- files to keep, below tasks/<master_id>/<id>/
  -- Deaths of the process, see died(): in a row with this task running,
  crashes int not null default 0,
  alone int not null default 0,                         -- of them as the only suspect, less those during its pause;
  held_until timestamptz,                               -- the pause after such a death
  silent_since timestamptz,                             -- the last sign of life of a process whose lease expired
  -- Budgets, see reserve():
  budget_usd double precision,                          -- of the whole tree, in its first task's row; null: none
  reserved_token bigint,                                -- the run that reserved; void unless it is `token`
  reserved_usd double precision,
  reserved_tokens bigint,                               -- of models without a price
  check (kind <> 'chat' or (session_id is not null
    and status in ('pending', 'running', 'completed', 'failed', 'cancelled')))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
create index tasks_claimable on tasks (lane, priority desc, run_at, seq) where status = 'pending';
create index tasks_running on tasks (id) where status = 'running';
create unique index tasks_one_live_chat on tasks (session_id)
  where kind = 'chat' and status in ('pending', 'running');
create unique index tasks_dedupe on tasks (dedupe)
  where dedupe is not null and status not in ('completed', 'failed', 'cancelled');
create index tasks_by_master on tasks (master_id, depth);
create index tasks_failed on tasks (updated_at) where status = 'failed';
create index tasks_live_by_session on tasks (session_id)
  where status not in ('completed', 'failed', 'cancelled');
create index tasks_suspect on tasks (status)
  where status in ('pending', 'running') and crashes > 0;
create index tasks_trees on tasks (principal_id, seq desc)
  where parent_id is null and kind = 'agent' and input ->> 'origin' = 'task';
create index tasks_by_parent on tasks (parent_id) where parent_id is not null;

-- The trace of a task: model calls, tool calls and decisions, with what they cost.
create table task_steps (
  id bigint generated always as identity primary key,
  task_id uuid not null references tasks on delete cascade,
  principal_id uuid not null references principals,
  kind text not null check (kind in ('model', 'intent', 'tool', 'hand-off', 'review', 'note')),
  name text not null,                                   -- the model or the tool
  tokens_in int not null default 0,
  tokens_out int not null default 0,
  tokens_cached int not null default 0,
  cost_usd double precision not null default 0,
  latency_ms int not null default 0,
  failed jsonb not null default '[]',                   -- failed tries before this one: [{model, error, message}]
  created_at timestamptz not null default now(),
  -- In the transcript: the model's first words, a call, its result:
  message_id bigint,
  ok boolean,                                           -- of a tool run or a review; null elsewhere
  tokens_thinking int not null default 0,               -- part of tokens_out
  thinking_usd double precision not null default 0      -- part of cost_usd
);
create index task_steps_by_task on task_steps (task_id, id);
create index task_steps_by_day on task_steps (created_at);

-- The to-do list of a live run, rendered as todo/todo.md.
create table todo_lists (
  task_id uuid primary key references tasks on delete cascade,
  principal_id uuid not null references principals,
  title text not null default '',
  steps jsonb not null default '[]',                    -- [{"text", "done"}], in order
  trivial text,                                         -- why the run needs no list; then it has no steps
  label smallint not null,                              -- of the run when it wrote the list
  ordinal int not null,                                 -- of the call that wrote it last
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index todo_lists_by_principal on todo_lists (principal_id);

-- Reminders, recurring tasks, and the backlog of things without a time.
create table schedules (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  name text not null,
  prompt text not null,
  run_at timestamptz,                                   -- once
  cron text,                                            -- recurring; neither: an item of the backlog
  zone text not null default 'UTC',                     -- in which its times are meant and shown
  misfire text not null default 'run_once' check (misfire in ('run_once', 'skip', 'catch_up')),
  include_session_history boolean not null default false,
  address_id bigint references addresses,               -- the chat that asked for it; null: where its person wrote last
  label smallint not null default 0,                    -- of the conversation that asked for it
  origin text not null,                                 -- the channel that it was asked for by, or 'cli'
  asked_by text unique,                                 -- the tool call that made it: <task>/<ordinal>
  next_run_at timestamptz,                              -- its next slot; null: none
  task_id uuid,                                         -- of its last run
  paused_at timestamptz,
  completed_at timestamptz,                             -- once: its slot is over
  failing_since timestamptz,                            -- its person was notified that it fails
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  plan jsonb,                                           -- of every run, as confirmed: {"arguments", "result"} of `plan`
  check (run_at is null or cron is null)
);
create unique index schedules_by_name on schedules (principal_id, lower(name)) where completed_at is null;
create index schedules_due on schedules (next_run_at) where next_run_at is not null and paused_at is null;

create table schedule_runs (
  schedule_id bigint not null references schedules on delete cascade,
  slot timestamptz not null,                            -- the planned time
  principal_id uuid not null references principals,
  missed int not null default 0,                        -- slots without a run, up to this one
  missed_since timestamptz,                             -- the first of them
  task_id uuid,                                         -- null: this slot had no run either
  executed_at timestamptz,                              -- the agent finished
  produced_at timestamptz,                              -- it had something to say
  message_id bigint references messages,                -- which said it
  delivered_at timestamptz,                             -- its last part was delivered
  error text,                                           -- one line
  created_at timestamptz not null default now(),
  primary key (schedule_id, slot)
);
create index schedule_runs_by_task on schedule_runs (task_id);
create index schedule_runs_on_their_way on schedule_runs (message_id)
  where message_id is not null and delivered_at is null and error is null;

-- Calls from outside that started a task, once per idempotency key.
create table triggers (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  source text not null,
  account text not null,                                -- the credential it came with
  idempotency_key text,
  digest text not null,                                 -- of the request, to compare one with the same key
  task_id uuid not null references tasks,
  created_at timestamptz not null default now()
);
create unique index triggers_by_key on triggers (source, idempotency_key);
create index triggers_by_task on triggers (task_id);

-- Model calls of tasks that were cleared, as sums.
create table usage (
  day date not null,                                    -- UTC
  principal_id uuid not null references principals,
  session_id uuid,                                      -- null: of no conversation
  kind text not null,                                   -- of the task
  model text not null,
  calls int not null,
  tokens_in bigint not null,
  tokens_out bigint not null,
  tokens_cached bigint not null,
  cost_usd double precision not null,
  unique nulls not distinct (day, principal_id, session_id, kind, model)
);
create index usage_by_principal on usage (principal_id);

-- Claims up to n due tasks of a lane for a worker. A task whose process died twice in a row (crashes >= 2) is on
-- probation: one such task at first, and as many again as run whenever the youngest has lived for a while, which is
-- longer the more deaths it met. While one is tried, those that met one death wait, too: beside them it would never be
-- the only suspect. A task of a gateway (instance_id) waits for it as long as that gateway holds a lease.
-- A worker names the kinds that it knows, so work queued by a newer release waits for a newer worker.
create function claim(p_worker uuid, p_lane text, n int, p_lease interval, p_kinds text[] default null)
returns setof tasks language sql set search_path = supaclaw as $$
  with watched as (
    select count(*) as runs, max(updated_at + make_interval(secs => power(2, least(crashes, 12) - 2))) as until
    from tasks where status = 'running' and crashes >= 2 and worker = p_worker
  ), tried as (
    select t.id from tasks t
    where t.status = 'pending' and t.lane = p_lane and t.run_at <= now() and (p_kinds is null or t.kind = any(p_kinds))
      and t.crashes >= 2 and (t.held_until is null or t.held_until <= now())
      and (t.instance_id is null or t.instance_id = p_worker or not exists (
        select from leases l where l.holder = t.instance_id and l.expires_at > now()))
    order by t.crashes desc, t.priority desc, t.run_at, t.seq
    limit (select case when until > now() then 0 else greatest(1, runs) end from watched)
  ), due as (
    select t.id from tasks t
    where t.status = 'pending' and t.lane = p_lane and t.run_at <= now() and (p_kinds is null or t.kind = any(p_kinds))
      and (t.instance_id is null or t.instance_id = p_worker or not exists (
        select from leases l where l.holder = t.instance_id and l.expires_at > now()))
      and (t.crashes = 0 or t.id in (select id from tried)
           or t.crashes = 1 and not exists (select from tried)
              and not exists (select from watched where until > now()))
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

-- The fence: locks the row if this run still owns it, else raises SW001.
create function hold(p_id uuid, p_token bigint) returns tasks
language plpgsql set search_path = supaclaw as $$
declare t tasks;
begin
  select * into t from tasks where id = p_id for update;
  if t.id is null or t.status <> 'running' or t.token <> p_token then
    raise exception using errcode = 'SW001',
      message = format('run lost: task %s is %s', p_id, coalesce(t.status, 'gone'));
  end if;
  return t;
end $$;

-- Renews the leases of these runs and returns those that are still owned; the others are lost.
create function heartbeat(p_worker uuid, p_ids uuid[], p_tokens bigint[], p_lease interval) returns setof uuid
language sql set search_path = supaclaw as $$
  with mine as (
    select t.id from tasks t
    join unnest(p_ids, p_tokens) as r (id, token) on r.id = t.id and r.token = t.token
    where t.worker = p_worker and t.status = 'running'
    order by t.depth, t.id for update of t
  )
  update tasks t set lease_until = now() + p_lease from mine where t.id = mine.id returning t.id
$$;

-- Commits a step of a run: checks the fence, may renew the lease (p_lease), and starts attempts and deaths over.
create function progress(p_id uuid, p_token bigint, p_lease interval default null) returns void
language plpgsql set search_path = supaclaw as $$
begin
  perform hold(p_id, p_token);
  update tasks set lease_until = coalesce(now() + p_lease, lease_until), attempts = 1, crashes = 0, alone = 0,
    held_until = null, updated_at = case when attempts > 1 or crashes > 0 then now() else updated_at end
  where id = p_id and (p_lease is not null or attempts > 1 or crashes > 0);
end $$;

-- Ends a run and its task, and cancels open tasks below it. A task with neither parent nor open children, as most, ends
-- with one update that is its own fence. Locks the parent before the task, as everything here locks by depth.
create function finish(p_id uuid, p_token bigint, p_status text, p_output jsonb default null,
  p_error text default null)
returns void language plpgsql set search_path = supaclaw as $$
begin
  update tasks set status = p_status, output = p_output, error = p_error, worker = null, lease_until = null,
    updated_at = now()
  where id = p_id and token = p_token and status = 'running' and open_children = 0 and parent_id is null;
  if found then
    return;
  end if;
  perform from tasks where id = (select parent_id from tasks where id = p_id) for update;
  if (hold(p_id, p_token)).open_children > 0 then
    perform cancel_tree(p_id, false, 'the task above it ended');
  end if;
  perform settle(p_id, p_status, p_output, p_error);
end $$;

-- Ends a task that the caller has locked.
create function settle(p_id uuid, p_status text, p_output jsonb, p_error text) returns void
language plpgsql set search_path = supaclaw as $$
declare v_parent uuid;
begin
  update tasks set status = p_status, output = p_output, error = p_error, worker = null, lease_until = null,
    open_children = 0, updated_at = now()
  where id = p_id returning parent_id into v_parent;
  if v_parent is not null then
    perform close_child(v_parent);
  end if;
end $$;

-- A child of the task is over; the task wakes with its last one.
create function close_child(p_parent uuid) returns void
language sql set search_path = supaclaw as $$
  update tasks set open_children = open_children - 1, updated_at = now(),
    attempts = case when open_children = 1 then 0 else attempts end,
    run_at = case when open_children = 1 and status = 'pending_subtask' then now() else run_at end,
    status = case when open_children = 1 and status = 'pending_subtask' then 'pending' else status end
  where id = p_parent
$$;

-- Ends a run but not its task: pending again after a delay, or waiting for its children or a person.
create function suspend(p_id uuid, p_token bigint, p_status text, p_delay interval default '0',
  p_error text default null)
returns void language plpgsql set search_path = supaclaw as $$
declare t tasks;
begin
  t := hold(p_id, p_token);
  update tasks set worker = null, lease_until = null, run_at = now() + p_delay, updated_at = now(),
    error = coalesce(p_error, error),
    status = case when p_status = 'pending_subtask' and t.open_children = 0 then 'pending' else p_status end
  where id = p_id;
end $$;

-- Cancels a task and everything below it; returns the ids of those that were running.
create function cancel(p_root uuid) returns setof uuid
language plpgsql set search_path = supaclaw as $$
declare v_parent uuid; v_task uuid; v_ran boolean;
begin
  select parent_id into v_parent from tasks where id = p_root;
  perform from tasks where id = v_parent for update;
  for v_task, v_ran in select c.task, c.ran from cancel_tree(p_root, true, null) c loop
    if v_task = p_root and v_parent is not null then
      perform close_child(v_parent);
    end if;
    if v_ran then
      return next v_task;
    end if;
  end loop;
end $$;

-- Cancels what is open below a task, and with p_itself the task too. All at once, since counting a parent of a thousand
-- down one by one takes seconds. Repeats until nothing is left: a run that it waited for may have committed a child
-- that the previous pass couldn't see.
create function cancel_tree(p_root uuid, p_itself boolean, p_error text) returns table (task uuid, ran boolean)
language plpgsql set search_path = supaclaw as $$
begin
  loop
    return query
      with recursive tree as (
        select id from tasks where id = p_root
        union all select c.id from tasks c join tree on c.parent_id = tree.id
      ), open as (
        select t.id, t.status = 'running' as ran from tasks t join tree using (id)
        where t.status not in ('completed', 'failed', 'cancelled') and (p_itself or t.id <> p_root)
        order by t.depth, t.id for update of t
      ), over as (
        update tasks t set status = 'cancelled', output = null, error = p_error, worker = null, lease_until = null,
          open_children = 0, updated_at = now()
        from open where t.id = open.id returning t.id, t.depth, open.ran
      )
      select o.id, o.ran from over o order by o.depth, o.id;
    exit when not found;
  end loop;
end $$;

-- Makes the runs of a worker pending again: at its start what was running when it died, and at its orderly stop what it
-- interrupts, which is no failed attempt (p_refund = 1). p_known: runs that it has since claimed and keeps.
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

-- Makes the runs of dead processes, whose leases expired, pending again, and notes when each was last heard of: a call
-- that it began just then may still be under way.
create function recover(p_lease interval) returns int
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

-- A process died while it ran these tasks: they become pending at once and lose no attempt. If exactly one of its
-- runs had met a death before, and it had met several or ran alone, it is the suspect. It is held back, the longer
-- the longer it ran, so that random deaths fall into its pause more often than into its next try. A death in the
-- pause speaks for it (`alone` falls), unless another suspect explains that death. A death that meets no earlier
-- suspect clears the suspects that wait; else their pauses start over. A task with too many deaths as the only
-- suspect is given up (domain/work/tasks.py).
create function died(p_worker uuid, p_ids uuid[], p_lease interval, p_error text) returns int
language plpgsql set search_path = supaclaw as $$
declare v_ids uuid[] := coalesce(p_ids, '{}'); v_met boolean; v_alone boolean;
begin
  select coalesce(bool_or(crashes > 0), false),
         count(*) filter (where crashes > 0) = 1 and (max(crashes) > 1 or count(*) = 1)
  into v_met, v_alone from tasks where status = 'running' and worker = p_worker;
  update tasks set status = 'pending', worker = null, lease_until = null, run_at = now(), error = p_error,
    attempts = greatest(0, attempts - 1), crashes = crashes + 1, alone = alone + (v_alone and crashes > 0)::int,
    held_until = case when v_alone and crashes > 0 and alone < 2
      then now() + power(3, greatest(0, alone))
        * ('10 s' + 4 * greatest('0 s', lease_until - p_lease - updated_at)) end,
    updated_at = now()
  where id = any(v_ids);
  update tasks set
    crashes = case when v_met then crashes else 1 end,
    alone = case when held_until > now() and not v_alone
                 then greatest(-1, case when v_met then alone else least(0, alone) end - 1) else alone end,
    held_until = case when v_met and held_until > now() then now() + (held_until - updated_at) end,
    updated_at = now()
  where status = 'pending' and crashes > 0 and not id = any(v_ids);
  return cardinality(v_ids);
end $$;

-- Notifies workers, but only of a change that someone has to act on: a commit that notifies takes a server-wide lock.
-- A chat's task is left to the instance that stored the message, which knows of it.
create function told() returns trigger language plpgsql set search_path = supaclaw as $$
begin
  if new.status = 'pending' then
    perform pg_notify('supaclaw_task', '');
  elsif new.status = 'cancelled' then
    perform pg_notify('supaclaw_cancel', new.id::text);
  end if;
  return null;
end $$;
create trigger tasks_told_insert after insert on tasks
  for each row when (new.status = 'pending' and new.kind <> 'chat') execute function told();
create trigger tasks_told_update after update of status on tasks
  for each row when (new.status = 'pending' and old.status <> 'pending'
    or new.status = 'cancelled' and old.status = 'running') execute function told();

-- Notifies the followers of a trace, who hold a lease with the notification's name; without one nothing is sent, since
-- a commit that notifies takes a server-wide lock. A follower that misses it sees the step at its next poll.
create function step_told() returns trigger language plpgsql set search_path = supaclaw as $$
begin
  perform pg_notify(l.name, new.id::text) from leases l
  where l.expires_at > now() and l.name in ('supaclaw:task:' || new.task_id,
    'supaclaw:master:' || (select master_id from tasks where id = new.task_id));
  return null;
end $$;
create trigger task_steps_told after insert on task_steps for each row execute function step_told();

-- Notifies the scheduler that a due time changed; the scheduler itself only sets next_run_at.
create function schedules_told() returns trigger language plpgsql set search_path = supaclaw as $$
begin
  perform pg_notify('supaclaw_schedule', '');
  return null;
end $$;
create trigger schedules_told after insert or update of run_at, cron, zone, paused_at on schedules
  for each statement execute function schedules_told();

-- Reserves money or tokens for the next model call of a run. Returns null, or the name of the budget that is used up,
-- or 'busy' while others have reserved what it needs; a call larger than a budget still gets the rest of it, alone.
-- Calls of one tree, day and month are checked one at a time. A reservation counts as long as its run lives; the crash
-- of the run loses at most that of one failed call.
create function reserve(p_task uuid, p_token bigint, p_usd double precision, p_tokens bigint, p_now timestamptz,
  p_before double precision, p_day_usd double precision, p_month_usd double precision, p_day_tokens bigint)
returns text language plpgsql set search_path = supaclaw as $$
declare
  v_day timestamptz := date_trunc('day', p_now, 'UTC');
  v_since timestamptz := greatest(date_trunc('month', p_now, 'UTC'), v_day - interval '1 day');
  v_key text := 'budget:' || to_char(v_day at time zone 'UTC', 'YYYY-MM-DD') || ':';
  v_month_key text := 'budget:' || to_char(p_now at time zone 'UTC', 'YYYY-MM') || '-01:month';
  v_shared boolean := coalesce(p_day_usd, p_month_usd, p_day_tokens) is not null;
  v_master uuid; v_tree_usd double precision; v_refused text;
begin
  perform set_config('synchronous_commit', 'off', true);
  select m.id, m.budget_usd into v_master, v_tree_usd
  from tasks t join tasks m on m.id = t.master_id where t.id = p_task;
  if v_tree_usd is not null then
    perform from tasks where id = v_master for update;
  end if;
  if v_shared then
    insert into meta (key, value) values ('reserving', 'true') on conflict do nothing;
    perform from meta where key = 'reserving' for update;
  end if;
  perform hold(p_task, p_token);
  with others as (
    select master_id, reserved_usd, reserved_tokens from tasks
    where status = 'running' and reserved_token = token and id <> p_task
  ), used as (
    select coalesce(sum(cost_usd) filter (where created_at >= v_day), 0) as day, coalesce(sum(cost_usd), 0) as month,
           coalesce(sum(tokens_in + tokens_out) filter (where cost_usd = 0 and created_at >= v_day), 0) as tokens
    from task_steps where v_shared and kind = 'model' and created_at >= v_since
  ), budgets (name, most, spent, reserved, asked) as (
    select 'tree_usd', v_tree_usd,
      (select sum(s.cost_usd) from tasks n join task_steps s on s.task_id = n.id
       where v_tree_usd is not null and n.master_id = v_master),
      (select sum(reserved_usd) from others where master_id = v_master), p_usd
    union all
    select 'month_usd', p_month_usd + coalesce((select value::float8 from meta where key = v_month_key), 0),
      p_before + month, (select sum(reserved_usd) from others), p_usd from used
    union all
    select 'day_usd', p_day_usd + coalesce((select value::float8 from meta where key = v_key || 'day'), 0),
      day, (select sum(reserved_usd) from others), p_usd from used
    union all
    select 'day_tokens', p_day_tokens + coalesce((select value::float8 from meta where key = v_key || 'tokens'), 0),
      tokens, (select sum(reserved_tokens) from others), p_tokens from used
  ), refused as (
    select case when spent > 0 and spent >= most then name
                when reserved > 0 and asked > 0 and coalesce(spent, 0) + reserved + asked > most then 'busy' end as name
    from budgets where most is not null
  )
  select name into v_refused from refused where name is not null order by name = 'busy' limit 1;
  if v_refused is null then
    update tasks set reserved_token = p_token, reserved_usd = p_usd, reserved_tokens = p_tokens where id = p_task;
  end if;
  return v_refused;
end $$;


-- The turn of a chat ---------------------------------------------------------------------------------------------------
-- Each commit of it is one function, which is called without a transaction around it.

-- What a turn reads of a session, in order: the last summary, then what that does not cover; nothing unread.
create function transcript(p_session uuid) returns setof messages language sql stable as $$
  with last as (
    select s.id, s.covers from supaclaw.past(p_session) p cross join lateral (
      select id, covers from supaclaw.messages
      where session_id = p.id and kind = 'summary' and covers <= p.until and created_at <= p.at
      order by seq desc limit 1) s
    order by p.depth limit 1
  )
  select m.* from (
    (select * from supaclaw.messages where id = (select id from last))
    union all
    (select m.* from supaclaw.past(p_session) p
     join supaclaw.messages m on m.session_id = p.id and m.seq <= p.until
     where m.kind <> 'summary' and m.seq > coalesce((select covers from last), 0))) m
  order by kind <> 'summary', seq
$$;

-- The fields that only the provider of a message understands: source, message, those of each call.
create function kept_fields(m messages) returns text[] language sql stable as $$
  select case when m.kind in ('assistant', 'tool_intent') then
    (select array[f.source, f.message] || f.calls from supaclaw.provider_fields f where f.message_id = m.id) end
$$;

-- The files of these messages, and with an age those of the whole conversation: each once, of thousands the newest.
create function turn_files(p_session uuid, p_messages bigint[], p_limit int)
returns table (attachment_id uuid, age bigint, total bigint) language sql stable as $$
  with newest as (
    select n.* from supaclaw.past(p_session) p cross join lateral (
      select a.id, a.file_id, a.created_at, a.place
      from supaclaw.attachments a join supaclaw.messages m on m.id = a.message_id
      where a.session_id = p.id and a.state = 'stored' and m.seq <= p.until and m.withdrawn is distinct from 'deleted'
      order by a.created_at desc, a.place desc limit p_limit * 4) n
    order by n.created_at desc, n.place desc limit p_limit * 4
  ), latest as (
    select distinct on (file_id) id, created_at, place from newest order by file_id, created_at desc, place desc
  ), listed as (
    select id, row_number() over (order by created_at desc, place desc) as age, count(*) over () as total from latest
  )
  select id, max(age), max(total) from (
    select id, age, total from listed where age <= p_limit
    union all select id, null, null from supaclaw.attachments
    where session_id in (select id from supaclaw.past(p_session)) and message_id = any(p_messages)) chosen
  group by id
$$;

-- Gives unread messages their place in the transcript; the caller holds the session. A solo message is taken alone, at
-- the start of a turn: it joins no turn that runs or that has open messages, and nothing joins its turn. One whose
-- files are on their way stays unread for p_patience, and so does what came after it.
create function take_unread(p_session uuid, p_joining boolean, p_patience interval) returns setof messages
language sql set search_path = supaclaw as $$
  with open as (
    select id, seq, solo, created_at from messages
    where session_id = p_session and kind = 'user' and answered_by is null and closed_at is null
  ), incomplete as (
    select o.id from open o
    join attachments a on a.message_id = o.id left join files f on f.id = a.file_id
    where a.state <> 'failed' and f.derived_at is null and o.created_at > now() - p_patience
  ), waiting as (
    select id, row_number() over (order by id) as place,
           bool_or(solo) over (order by id) as behind_solo,
           bool_or(id in (select id from incomplete)) over (order by id) as behind_files
    from open where seq is null
  ), chosen as (
    select id, place from waiting
    where not behind_files and case when exists (select from open where seq is not null and solo) then false
               when p_joining or exists (select from open where seq is not null) then not behind_solo
               else not behind_solo or place = 1 end
  ), counted as (
    update sessions set next_seq = next_seq + (select count(*) from chosen)::int, spoken_at = now()
    where id = p_session and exists (select from chosen) returning next_seq
  )
  update messages m
  set seq = (select next_seq from counted) - (select count(*) from chosen)::int + chosen.place::int - 1
  from chosen where m.id = chosen.id returning m.*
$$;

-- Opens the turn of a chat: takes the unread messages, and returns first its state, then its transcript. No rows: all is
-- answered, and the task has ended, or files are on their way, and the task waits; who fetches them hastens it.
-- A suspect, which may kill its process, takes none besides those that it was answering.
create function open_chat(p_session uuid, p_task uuid, p_token bigint, p_suspect boolean, p_patience interval,
  p_files int)
returns table (state jsonb, entry messages, fields text[]) language plpgsql set search_path = supaclaw as $$
declare v_label smallint; v_task tasks; v_entries messages[]; v_asked messages[];
begin
  select label into v_label from sessions where id = p_session for no key update;
  v_task := hold(p_task, p_token);
  for v_round in 1 .. 2 loop
    if v_round = 2 or not p_suspect then
      perform take_unread(p_session, false, p_patience);
    end if;
    v_entries := array(select t from transcript(p_session) t);
    v_asked := array(select e from unnest(v_entries) e
                     where e.kind = 'user' and e.answered_by is null and e.closed_at is null);
    exit when v_asked <> '{}' or not p_suspect;
  end loop;
  if v_asked = '{}' then
    if exists (select from messages where session_id = p_session and kind = 'user' and seq is null
                 and answered_by is null and closed_at is null) then
      perform renew(p_task, p_token, (
        select greatest('0', min(created_at) + p_patience - now()) from messages
        where session_id = p_session and kind = 'user' and seq is null and answered_by is null and closed_at is null));
    else
      perform finish(p_task, p_token, 'completed');
    end if;
    return;
  end if;
  return query
    select jsonb_build_object('label', v_label, 'principal', to_jsonb(p), 'address', to_jsonb(a), 'files', (
             select coalesce(jsonb_agg(to_jsonb(f) || jsonb_build_object('age', t.age, 'total', t.total)), '[]')
             from turn_files(p_session, array(select e.id from unnest(v_entries) e), p_files) t
             join attached f using (attachment_id)
             where exists (select from attachments where session_id in (select id from past(p_session))))),
           null::messages, null::text[]
    from addresses a, (select id, role, name from principals where id = v_task.principal_id) p
    where a.id = v_asked[cardinality(v_asked)].address_id;
  return query select null::jsonb, e, kept_fields(e) from unnest(v_entries) e;
end $$;

-- Claims tasks for the free slots of each lane, and opens at most 25 chats of them: each is a row with the run in its
-- state, with that of open_chat and its rows behind it if it is opened. None for a program too old for the schema. The
-- lane with the worst suspect comes first: the others then know of it. A chat is left to its run if its session is
-- locked, which is never waited for here, if it had an attempt before, or if opening it fails, whose code is in its
-- state, or answers it.
create function claim_open(p_worker uuid, p_free jsonb, p_lease interval, p_kinds text[], p_schema int,
  p_patience interval, p_files int)
returns table (state jsonb, entry messages, fields text[]) language plpgsql set search_path = supaclaw as $$
declare t tasks; v_claimed tasks[]; v_run jsonb; v_open boolean; v_left int := 25;
begin
  if (select max(compatible_from) from migrations) > p_schema then
    return;
  end if;
  v_claimed := array(
    select c from (
      select key, value::int as slots from jsonb_each(p_free) order by (
        select max(crashes) from tasks where status = 'pending' and crashes > 1 and lane = key
          and run_at <= now() and (held_until is null or held_until <= now())) desc nulls last) free,
      claim(p_worker, key, slots, p_lease, p_kinds) c);
  foreach t in array v_claimed loop
    select jsonb_build_object('run', to_jsonb(r)) into v_run from (
      select t.id, t.token, t.kind, t.lane, t.principal_id, t.session_id, t.agent, t.attempts, t.max_attempts, t.alone,
             extract(epoch from now() - t.silent_since) as silent_for) r;
    v_open := false;
    if t.kind = 'chat' and t.attempts = 1 and t.alone = 0 and v_left > 0 then
      begin
        perform from sessions where id = t.session_id for no key update skip locked;
        if found then
          return query select o.state || v_run, o.entry, o.fields
                       from open_chat(t.session_id, t.id, t.token, false, p_patience, p_files) o;
          v_open := found;
          if not v_open then
            raise exception using errcode = 'SW002';  -- it is over, or waits, which its run finds out
          end if;
        end if;
      exception
        when sqlstate 'SW002' then null;  -- the function had returned no row
        when others then v_run := v_run || jsonb_build_object('not_opened', sqlstate);
      end;
      v_left := v_left - 1;
    end if;
    if not v_open then
      return query select v_run, null::messages, null::text[];
    end if;
  end loop;
end $$;

-- Makes a run's task pending again with all attempts, because there is more to do.
create function renew(p_id uuid, p_token bigint, p_delay interval) returns void
language plpgsql set search_path = supaclaw as $$
begin
  perform suspend(p_id, p_token, 'pending', p_delay);
  update tasks set attempts = 0, crashes = 0, alone = 0, held_until = null, error = null where id = p_id;
end $$;

-- Makes sure that a live task answers the session, after a delay at the latest; the caller holds the session.
create function create_chat(p_task uuid, p_principal uuid, p_session uuid, p_instance uuid, p_delay interval)
returns void language sql set search_path = supaclaw as $$
  insert into tasks (id, master_id, kind, lane, principal_id, session_id, instance_id, run_at)
  values (p_task, p_task, 'chat', 'chat', p_principal, p_session, p_instance, now() + p_delay)
  on conflict (session_id) where kind = 'chat' and status in ('pending', 'running')
  do update set run_at = excluded.run_at where tasks.status = 'pending' and tasks.run_at > excluded.run_at
$$;

-- Appends an entry to the transcript; the caller holds the session. With p_answers it answers every message that the
-- turn took.
create function say(p_session uuid, p_principal uuid, p_address bigint, p_kind text, p_text text, p_label smallint,
  p_origin text, p_final boolean, p_task uuid, p_covers int, p_tokens int, p_remembered bigint[], p_answers boolean)
returns messages language plpgsql set search_path = supaclaw, pg_temp as $$
declare v_said messages;
begin
  with place as (
    update sessions set next_seq = next_seq + 1, spoken_at = now() where id = p_session
    returning next_seq - 1 as seq
  )
  insert into messages (session_id, principal_id, address_id, seq, kind, text, label, origin, final, task_id,
                        closed_at, covers, tokens, remembered, journal_id)
  select p_session, p_principal, p_address, place.seq, p_kind, p_text, p_label, p_origin, p_final, p_task,
         case when p_kind = 'user' and p_task is null then now() end, p_covers, p_tokens, p_remembered,
         (select id from journals where session_id = p_session and closed_at is null)
  from place returning * into v_said;
  if p_answers then
    update messages set answered_by = v_said.id
    where session_id = p_session and kind = 'user' and seq is not null and answered_by is null and closed_at is null;
  end if;
  return v_said;
end $$;

-- Records a model call, and settles what it had reserved; the caller holds the task. With the message p_message, the
-- first that it said: the thinking before it, and in p_fields_of, an answer or its first call, the provider's fields.
create function model_called(p_task uuid, p_principal uuid, p_message bigint, p_fields_of bigint, r jsonb)
returns void language plpgsql set search_path = supaclaw as $$
begin
  update tasks set reserved_token = null where id = p_task and reserved_token is not null;
  insert into task_steps (task_id, principal_id, kind, name, tokens_in, tokens_out, tokens_cached, cost_usd, latency_ms,
                          failed, message_id, tokens_thinking, thinking_usd)
  values (p_task, p_principal, 'model', r ->> 'model', (r ->> 'tokens_in')::int, (r ->> 'tokens_out')::int,
          (r ->> 'tokens_cached')::int, (r ->> 'cost_usd')::float8, (r ->> 'latency_ms')::int, r -> 'failed', p_message,
          (r ->> 'tokens_thinking')::int, (r ->> 'thinking_usd')::float8);
  insert into provider_fields (message_id, principal_id, label, source, message, calls)
  select id, principal_id, label, r #>> '{fields,0}', r #>> '{fields,1}',
         array(select jsonb_array_elements_text(r -> 'fields') offset 2)
  from messages where id = p_fields_of and jsonb_typeof(r -> 'fields') = 'array';
  insert into thoughts (message_id, principal_id, label, text, tokens, ms)
  select id, principal_id, label, r #>> '{thought,text}', (r ->> 'tokens_thinking')::int,
         (r #>> '{thought,ms}')::int
  from messages where id = p_message and jsonb_typeof(r -> 'thought') = 'object';
end $$;

-- Appends calls to the transcript, in order; the caller holds the session. Those without a task were made before the
-- conversation reached us.
create function intend(p_session uuid, p_principal uuid, p_task uuid, p_label smallint, p_calls jsonb)
returns setof bigint language sql set search_path = supaclaw as $$
  with place as (
    update sessions set next_seq = next_seq + jsonb_array_length(p_calls) where id = p_session
    returning next_seq - jsonb_array_length(p_calls) as first
  )
  insert into messages (session_id, principal_id, task_id, seq, kind, ordinal, call_id, tool, text, label, origin,
                        tokens, journal_id)
  select p_session, p_principal, p_task, place.first + i.place - 1, 'tool_intent', (i.call ->> 'ordinal')::int,
         i.call ->> 'id', i.call ->> 'tool', i.call ->> 'arguments', p_label, i.call ->> 'origin',
         (i.call ->> 'tokens')::int, (select id from journals where session_id = p_session and closed_at is null)
  from place, jsonb_array_elements(p_calls) with ordinality i (call, place)
  order by i.place returning id
$$;

-- Stores the result of a call once, and with p_ms the step; the caller holds the session.
create function conclude(p_session uuid, p_principal uuid, p_task uuid, p_label smallint, p_call jsonb, p_text text,
  p_tokens int, p_ms int, p_ok boolean)
returns void language sql set search_path = supaclaw as $$
  with place as (
    update sessions set next_seq = next_seq + 1 where id = p_session returning next_seq - 1 as seq
  ), said as (
    insert into messages (session_id, principal_id, task_id, seq, kind, ordinal, call_id, tool, text, label, origin,
                          tokens, journal_id)
    select p_session, p_principal, p_task, place.seq, 'tool_result', (p_call ->> 'ordinal')::int, p_call ->> 'id',
           p_call ->> 'tool', p_text, p_label, p_call ->> 'origin', p_tokens,
           (select id from journals where session_id = p_session and closed_at is null)
    from place
    on conflict (task_id, ordinal, kind) where ordinal is not null do nothing returning id
  )
  insert into task_steps (task_id, principal_id, kind, name, latency_ms, ok, message_id)
  select p_task, p_principal, 'tool', p_call ->> 'tool', p_ms, p_ok, (select id from said) where p_ms is not null
$$;

-- Commits the step of a run whose model asked for calls: what it said before them, the calls, and its costs;
-- with p_each also each call.
create function step_called(p_session uuid, p_task uuid, p_token bigint, p_lease interval, p_principal uuid,
  p_label smallint, p_text text, p_tokens int, p_calls jsonb, p_reply jsonb, p_each boolean)
returns void language plpgsql set search_path = supaclaw as $$
declare v_said bigint; v_calls bigint[];
begin
  perform from sessions where id = p_session for no key update;
  perform progress(p_task, p_token, p_lease);
  if p_text <> '' then
    v_said := (say(p_session, p_principal, null, 'assistant', p_text, p_label, 'agent', false, p_task, null,
                   p_tokens, '{}', false)).id;
  end if;
  v_calls := array(select intend(p_session, p_principal, p_task, p_label, p_calls));
  perform model_called(p_task, p_principal, coalesce(v_said, v_calls[1]), v_calls[1], p_reply);
  if p_each then
    insert into task_steps (task_id, principal_id, kind, name, message_id)
    select p_task, p_principal, 'intent', call ->> 'tool', v_calls[place]
    from jsonb_array_elements(p_calls) with ordinality i (call, place) order by place;
  end if;
end $$;

-- Commits the step of a run whose call has a result; its session's label rises to that of the result.
create function step_concluded(p_session uuid, p_task uuid, p_token bigint, p_lease interval, p_principal uuid,
  p_label smallint, p_call jsonb, p_text text, p_tokens int, p_ms int, p_ok boolean)
returns void language plpgsql set search_path = supaclaw as $$
begin
  perform from sessions where id = p_session for no key update;
  perform progress(p_task, p_token, p_lease);
  update sessions set label = p_label where id = p_session and label < p_label;
  perform conclude(p_session, p_principal, p_task, p_label, p_call, p_text, p_tokens, p_ms, p_ok);
end $$;

-- Stores a message of the plain kind, once, and queues its turn: in a known private chat that still belongs to its
-- sender, without files, quotes or albums. No row: it is of another kind, or was seen before, and nothing is stored.
-- The holder is p_holder, else the member with p_identity.
create function accept(p_channel text, p_account text, p_chat text, p_thread text, p_holder uuid, p_identity text,
  p_platform_id text, p_sent_at timestamptz, p_text text, p_tokens int, p_label smallint, p_sender text,
  p_as_owner boolean, p_solo boolean, p_entry uuid, p_task uuid, p_instance uuid, p_delay interval)
returns table (arrival bigint, address bigint, session uuid, message bigint)
language plpgsql set search_path = supaclaw as $$
declare a addresses; v_journal bigint;
begin
  select * into a from addresses
  where (channel, account, chat, thread) = (p_channel, p_account, p_chat, p_thread) for no key update;
  if a.id is null or not a.private or a.principal_id is distinct from coalesce(p_holder, (
       select id from principals where id = a.principal_id and role <> 'owner' and p_identity = any(identities))) then
    return;
  end if;
  perform from sessions where id = a.session_id for no key update;
  select id into v_journal from journals where session_id = a.session_id and closed_at is null;
  insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, platform_time, handled_at,
                     entry_id, journal_id, sender, as_owner)
  values (a.principal_id, a.id, a.channel, a.account, a.chat, p_platform_id, 'message', p_sent_at, now(), p_entry,
          v_journal, p_sender, p_as_owner)
  on conflict do nothing returning id into arrival;
  if arrival is null then
    return;
  end if;
  insert into messages (session_id, principal_id, address_id, kind, text, label, origin, platform_id, sent_at, solo,
                        entry_id, tokens, journal_id)
  values (a.session_id, a.principal_id, a.id, 'user', p_text, p_label, a.channel, p_platform_id, p_sent_at, p_solo,
          p_entry, p_tokens, v_journal)
  returning id into message;
  update inbox set message_id = message where id = arrival;
  perform create_chat(p_task, a.principal_id, a.session_id, p_instance, p_delay);
  update sessions set label = p_label where id = a.session_id and label < p_label;
  address := a.id;
  session := a.session_id;
  return next;
end $$;

-- Ends the run of a chat with its answer or a notice, in these parts. Returns its id; null, and nothing is stored, if
-- the session's label is not p_label any more, or if a message waits that no turn has taken.
create function answer(p_session uuid, p_task uuid, p_token bigint, p_label smallint, p_address bigint, p_kind text,
  p_text text, p_tokens int, p_origin text, p_remembered bigint[], p_reply jsonb, p_parts text[], p_reply_to text,
  p_status text, p_error text)
returns bigint language plpgsql set search_path = supaclaw as $$
declare v_label smallint; v_task tasks; v_said messages;
begin
  select label into v_label from sessions where id = p_session for no key update;
  v_task := hold(p_task, p_token);
  if v_label <> p_label or exists (select from messages where session_id = p_session and kind = 'user' and seq is null
                                     and answered_by is null and closed_at is null) then
    return null;
  end if;
  v_said := say(p_session, v_task.principal_id, p_address, p_kind, p_text, v_label, p_origin, true, p_task, null,
                p_tokens, p_remembered, true);
  if p_reply is not null then
    perform model_called(p_task, v_task.principal_id, v_said.id, v_said.id, p_reply);
  end if;
  insert into outbox (principal_id, address_id, message_id, part, text, reply_to)
  select v_task.principal_id, p_address, v_said.id, place - 1, text, case when place = 1 then p_reply_to end
  from unnest(p_parts) with ordinality as p (text, place);
  perform finish(p_task, p_token, p_status, null, p_error);
  return v_said.id;
end $$;

-- The other versions of a branch's messages, the newest; none if it is no branch.
create function other_versions(p_session uuid, p_limit int) returns setof bigint
language sql stable set search_path = supaclaw as $$
  with behind as (
    select p.id, p.until from past(p_session) p where p.depth > 0
    union all
    select s.id, s.parent_seq from sessions s join past(p_session) p on s.parent_id = p.id
    where s.id not in (select id from past(p_session)))
  select m.id from behind b cross join lateral (
    select id from messages where session_id = b.id and seq > b.until order by seq desc limit p_limit) m
  order by m.id desc limit p_limit
$$;

-- Queues a task, due after a delay; null if a live one has the same p_dedupe, if there is one of this id, or if the parent
-- is over. A child counts at its parent in the same transaction, and its priority is relative to that of the parent.
create function create_task(p_id uuid, p_principal uuid, p_kind text, p_lane text, p_input jsonb, p_dedupe text,
  p_parent uuid, p_max_attempts int, p_instance uuid, p_priority int, p_session uuid, p_agent text,
  p_budget_usd double precision, p_delay interval)
returns uuid language sql set search_path = supaclaw, pg_temp as $$
  with parent as (
    select master_id, depth, priority from tasks
    where id = p_parent and status not in ('completed', 'failed', 'cancelled') for update
  ), child as (
    insert into tasks (id, master_id, parent_id, depth, kind, lane, principal_id, input, dedupe, max_attempts,
                       instance_id, priority, session_id, agent, budget_usd, run_at)
    select p_id, coalesce((select master_id from parent), p_id), p_parent,
           coalesce((select depth + 1 from parent), 0), p_kind, p_lane, p_principal, p_input, p_dedupe, p_max_attempts,
           p_instance, p_priority + coalesce((select priority from parent), 0), p_session, p_agent, p_budget_usd,
           now() + p_delay
    where p_parent is null or exists (select from parent)
    on conflict do nothing returning id, parent_id
  ), counted as (
    update tasks set open_children = open_children + 1 where id = (select parent_id from child)
  )
  select id from child
$$;

-- The lines of a journal's file behind a message and an arrival; tool calls and results are cut. By time, but never
-- against the order within a table: a row's time is when its transaction began.
create function journal_lines(p_journal bigint, p_message bigint, p_arrival bigint, p_most int)
returns table (id bigint, arrived boolean, entry_id uuid, kind text, at timestamptz, who text, text text, length int,
  files text[])
language sql stable set search_path = supaclaw as $$
  select l.id, l.arrived, l.entry_id, l.kind, l.at, l.who, l.text, l.length, l.files from (
    select m.id, false as arrived, m.entry_id, m.kind, m.created_at as at,
           case when m.kind in ('tool_intent', 'tool_result') then coalesce(m.tool, '') else m.sender end as who,
           case when m.kind in ('tool_intent', 'tool_result') then left(m.text, p_most) else m.text end as text,
           length(m.text) as length, max(m.created_at) over (order by m.id) as placed,
           array(select concat(coalesce(nullif(a.name, ''), 'file'), ' → ' || f.path, ': ' || nullif(a.error, ''))
                 from attachments a left join files f on f.id = a.file_id
                 where a.message_id = m.id order by a.place) as files
    from messages m where m.journal_id = p_journal and m.id > p_message
    union all
    select i.id, true, i.entry_id, i.kind, i.received_at, '', i.text, length(i.text),
           max(i.received_at) over (order by i.id), '{}'
    from inbox i where i.journal_id = p_journal and i.id > p_arrival and i.kind in ('command', 'edit')) l
  order by l.placed, l.arrived, l.id
$$;

-- Whether an unread message follows soon on one of its sender that the turn answers, or that has this answer. The edit of
-- a message that is being answered counts however late it comes.
create function follows(p_session uuid, p_answer bigint, p_within interval) returns boolean
language sql stable set search_path = supaclaw as $$
  select exists (
    select from messages u join messages o on o.session_id = u.session_id and o.address_id = u.address_id
      and o.sender = u.sender and (u.created_at <= o.created_at + p_within or u.origin = 'revised')
    where u.session_id = p_session and u.kind = 'user' and u.seq is null
      and u.answered_by is null and u.closed_at is null and not u.solo
      and o.kind = 'user' and o.seq is not null and o.answered_by is not distinct from p_answer
      and o.closed_at is null and not o.solo)
$$;


-- Memory -------------------------------------------------------------------------------------------------------------

-- Everything that can be recalled: turns of conversations, memories learned from them, summaries, passages of files.
create table memories (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  kind text not null default 'memory' check (kind in ('turn', 'memory', 'summary', 'chunk')),
  text text,                                            -- null for a turn: the text is its message's
  label smallint not null,                              -- the least trusted label of what it was learned from
  origin text not null,                                 -- who wrote it: 'compaction', …
  agent text not null default 'default',
  -- Where it comes from: see memory_sources for memories.
  session_id uuid references sessions,
  first_seq int,                                        -- in rows older than memory_sources
  last_seq int,
  message_id bigint references messages on delete cascade,  -- turn
  path text,                                            -- chunk: its file, below the principal's file root
  page int,
  place int,                                            -- among the turns of its session, or the chunks of its file
  -- What it says:
  category text check (category in ('preference', 'decision', 'fact', 'context', 'project', 'person', 'correction')),
  importance double precision not null default 0.5 check (importance between 0 and 1),
  tags text[] not null default '{}',
  pinned boolean not null default false,
  language text,
  event_at timestamptz,                                 -- the time it is about
  seen_count int not null default 1,
  -- How it is found:
  lexemes tsvector,                                     -- null in rows older than search
  content_hash bytea,                                   -- memory: of its normalised text
  counted boolean not null default false,               -- in memory_df and memory_stats
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  -- When it stops being true:
  valid_to timestamptz,
  superseded_by bigint,
  superseded_at timestamptz,
  forgotten_at timestamptz,                             -- can be undone
  doubted_by bigint,                                    -- a newer memory that may replace it; a person decides
  unique (principal_id, id),
  foreign key (principal_id, superseded_by) references memories (principal_id, id) on delete set null (superseded_by),
  check ((kind = 'turn') = (message_id is not null)),
  check ((kind = 'turn') = (text is null)),
  check ((kind = 'memory') = (category is not null)),
  check ((kind = 'chunk') = (path is not null)),
  check ((kind in ('turn', 'chunk')) = (place is not null))
);
create unique index memories_turns on memories (message_id) where message_id is not null;
create unique index memories_places on memories (session_id, place) where kind = 'turn';
create unique index memories_live on memories (principal_id, agent, content_hash)
  where content_hash is not null and superseded_at is null and forgotten_at is null;
create index memories_chunks on memories (principal_id, path) where kind = 'chunk';
create index memories_kept on memories (principal_id, kind, id)
  where kind in ('memory', 'summary');
create index memories_uncounted on memories (id) where not counted;
create index memories_by_lexeme on memories using gin (lexemes) with (fastupdate = off);
create index memories_by_time on memories (principal_id, created_at);
create index memories_by_session on memories (session_id) where session_id is not null;
create index memories_by_agent on memories (principal_id, agent) where agent <> 'default';
create index memories_weighty on memories (principal_id, importance desc, id desc)
  where kind = 'memory' and superseded_at is null and forgotten_at is null;
create index memories_standing on memories (principal_id, importance desc, id desc)
  where kind = 'memory' and superseded_at is null and forgotten_at is null
    and (pinned or category = 'preference' or tags && '{core,preference}');
create index memories_by_tag on memories using gin (tags)
  where kind in ('memory', 'summary');
create index memories_doubted on memories (principal_id) where doubted_by is not null;
create index memories_summaries on memories (session_id) where kind = 'summary';

-- Memories with the text and role of their message, if they are turns.
create view remembered with (security_invoker = true) as
select m.id, m.principal_id, m.kind, coalesce(m.text, said.text) as text, m.category, m.importance, m.tags, m.pinned,
       m.label, m.origin, m.agent, m.session_id, m.message_id, coalesce(said.kind, '') as role, m.path, m.page,
       m.event_at, m.created_at, m.valid_to, m.superseded_by, m.superseded_at, m.forgotten_at, m.seen_count
from memories m left join messages said on said.id = m.message_id;

-- The messages that a memory was learned from.
create table memory_sources (
  memory_id bigint not null,
  message_id bigint not null references messages on delete cascade,
  principal_id uuid not null references principals,
  primary key (memory_id, message_id),
  foreign key (principal_id, memory_id) references memories (principal_id, id) on delete cascade
);
create index memory_sources_by_message on memory_sources (message_id);

-- How far a session's transcript is indexed as turns.
create table memory_progress (
  session_id uuid primary key references sessions on delete cascade,
  principal_id uuid not null references principals,
  seq int not null,                                     -- the last message looked at
  place int not null                                    -- the last turn's place
);

-- Files that are indexed, including those without a passage.
create table memory_files (
  principal_id uuid not null references principals,
  path text not null,
  version text not null,                                -- a changed file has another
  primary key (principal_id, path)
);

-- Document frequency: how many of a principal's memories contain a word.
create table memory_df (
  principal_id uuid not null references principals,
  lexeme text not null,
  df int not null,
  primary key (principal_id, lexeme)
) with (fillfactor = 80);

create table memory_stats (
  principal_id uuid primary key references principals,
  n bigint not null default 0,  -- memories counted in memory_df
  consolidated_at timestamptz not null default now(),
  consolidated_to bigint not null default 0             -- the last memory that consolidation looked at
);

-- Deleted or changed memories that memory_df still counts; the job `embed` takes them off.
create table memory_gone (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  lexemes tsvector not null
);
create function memories_gone() returns trigger
language plpgsql security definer set search_path = supaclaw, pg_temp as $$
begin
  insert into memory_gone (principal_id, lexemes) values (old.principal_id, old.lexemes);
  return null;
end $$;
create trigger memories_gone after delete on memories for each row when (old.counted) execute function memories_gone();
create trigger memories_changed after update of counted on memories
  for each row when (old.counted and not new.counted) execute function memories_gone();

-- Embedding models. While a new one's vectors are made, searches use the previous one's.
create table memory_models (
  id smallint generated always as identity primary key,
  name text not null unique,
  dimensions int not null,
  wanted boolean not null,                              -- vectors are being made with it
  current boolean not null                              -- searches use it
);
create unique index memory_models_wanted on memory_models (wanted) where wanted;
create unique index memory_models_current on memory_models (current) where current;
comment on table memory_models is 'derived: left out of backups';

-- Memories without a vector of the wanted model.
create table memory_unembedded (
  memory_id bigint primary key references memories on delete cascade,
  principal_id uuid not null references principals
);
comment on table memory_unembedded is 'derived: left out of backups';
create function memories_to_embed() returns trigger
language plpgsql security definer set search_path = supaclaw, pg_temp as $$
begin
  insert into memory_unembedded (memory_id, principal_id) values (new.id, new.principal_id) on conflict do nothing;
  return null;
end $$;
create trigger memories_to_embed after insert or update of text on memories
  for each row execute function memories_to_embed();

-- What was imported, by a hash of its content: importing again adds nothing, and doesn't revive what was forgotten.
create table imports (
  principal_id uuid not null references principals,
  agent text not null,
  key bytea not null,
  source text not null,
  place text not null,                                  -- its file and line
  session_id uuid references sessions on delete set null,
  memory_id bigint references memories on delete set null,
  schedule_id bigint references schedules on delete set null,
  imported_at timestamptz not null default now(),
  primary key (principal_id, agent, key)
);
create index imports_by_session on imports (session_id) where session_id is not null;
create index imports_by_memory on imports (memory_id) where memory_id is not null;
create index imports_by_schedule on imports (schedule_id) where schedule_id is not null;

create type memory_filter as (  -- an empty array or null: any
  kinds text[], categories text[], tags text[], session_id uuid, agent text, since timestamptz, until timestamptz,
  at_most smallint, pinned boolean, superseded boolean, min_importance double precision);

-- Whether a memory passes the filter. Inlined into the query, so that indexes serve its conditions; the query itself
-- must restrict principal_id.
create function memory_matches(m memories, f memory_filter) returns boolean language sql stable
return m.forgotten_at is null and (m.valid_to is null or m.valid_to > now())
  and (f.superseded or m.superseded_at is null)
  and (cardinality(f.kinds) = 0 or m.kind = any(f.kinds))
  and (cardinality(f.categories) = 0 or m.category = any(f.categories))
  and (cardinality(f.tags) = 0 or m.tags @> f.tags)
  and (f.session_id is null or m.session_id = f.session_id) and (f.agent is null or m.agent = f.agent)
  and (f.since is null or m.created_at >= f.since) and (f.until is null or m.created_at < f.until)
  and (f.pinned is null or m.pinned = f.pinned) and m.label <= f.at_most
  and (f.min_importance is null or m.importance >= f.min_importance);

-- What a memory is next to: other turns of its session, other chunks of its file; a learned memory stands alone.
create function memory_surroundings(m memories) returns text language sql immutable
return case m.kind when 'turn' then m.session_id::text when 'chunk' then m.path else 'memory ' || m.id end;

-- Document frequency and IDF of the query's words, the rarest first. With at most p_small memories they are counted on
-- the spot; else memory_df has them, and a word that it lacks counts as in one memory: it is new, or a typing error.
create function memory_words(p_principal uuid, p_words text[], p_small int)
returns table (word text, df int, idf real)
language plpgsql stable set search_path = supaclaw, pg_temp as $$
#variable_conflict use_column
declare v_n real; v_words text[]; v_counts int[];
begin
  select count(*) into v_n from (select from memories m where m.principal_id = p_principal limit p_small + 1) rows;
  if v_n <= p_small then
    select array_agg(a), array_agg(c) into v_words, v_counts from (
      select a, count(*)::int as c from memories m, unnest(tsvector_to_array(m.lexemes)) a
      where m.principal_id = p_principal and m.forgotten_at is null and a = any(p_words) group by a) counted;
  else
    select greatest(n, v_n) into v_n from memory_stats where principal_id = p_principal;
    select array_agg(d.lexeme), array_agg(d.df) into v_words, v_counts from memory_df d
    where d.principal_id = p_principal and d.lexeme = any(p_words);
    v_n := coalesce(v_n, p_small);
  end if;
  return query
    select w, greatest(c, 1), ln(1 + (greatest(v_n, c) - greatest(c, 1) + 0.5) / (greatest(c, 1) + 0.5))::real
    from (select distinct unnest(p_words) w) asked left join unnest(v_words, v_counts) as known (k, c) on k = w
    order by 2, 1 limit 64;
end $$;

-- What is usual for a principal's vectors, from a sample of 200: mean and spread of their cosine with the query, the
-- same between pairs of them, and the query moved away from their mean. Static SQL on vectors is parsed at its first
-- use, so a server without the extension accepts the function.
create function memory_usual(p_principal uuid, p_model smallint, p_vector text,
  out moved text, out centre real, out spread real, out pair_centre real, out pair_spread real)
language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  with ends as (
    select min(memory_id) as first, max(memory_id) as last
    from memory_vectors where model = p_model and principal_id = p_principal
  ), sample as materialized (
    select distinct on (v.memory_id) v.embedding::vector as e from ends, generate_series(0, 199) i cross join lateral (
      select memory_id, embedding from memory_vectors
      where model = p_model and principal_id = p_principal and memory_id >= first + (last - first) * i / 199
      order by memory_id limit 1) v
  ), asked as materialized (
    select p_vector::vector as q
  ), moved_ as materialized (
    select q - mean * array_fill(0.7::real, array[vector_dims(q)])::vector as q
    from asked, (select avg(e) as mean from sample) s where mean is not null
  ), near as (
    select 1 - (e <=> q) as c from sample, moved_
  ), fewer as materialized (
    select e, i from (select e, row_number() over () as i from sample) s where i % 4 = 1
  ), pairs as (
    select 1 - (a.e <=> b.e) as c from fewer a join fewer b on a.i < b.i
  )
  select q::text, n.centre, sqrt((n.v * n.n + 0.0009 * 20) / (n.n + 20)), p.centre, p.spread
  into moved, centre, spread, pair_centre, pair_spread
  from moved_, (select avg(c) as centre, coalesce(var_pop(c), 0) as v, count(*) as n from near) n,
       (select avg(c) as centre, greatest(stddev_pop(c), 0.01) as spread from pairs) p;
end $$;

-- The p_depth nearest memories that pass the filter. The index gives up early where few of many match; then they are
-- compared one by one.
create function memory_nearest(
  p_principal uuid, p_model smallint, p_vector text, f memory_filter, p_depth int, p_exact boolean)
returns bigint[] language plpgsql stable as $$
declare
  v_ids bigint[];
  v_exact boolean;
  v_distance text := format('(v.embedding::halfvec(%1$s) <=> $2::halfvec(%1$s))', vector_dims(p_vector::vector));
begin
  perform set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '200', true);
  foreach v_exact in array array[p_exact, true] loop
    execute format($sql$
      select array_agg(memory_id order by distance) from (
        select v.memory_id, %2$s as distance from memory_vectors v join memories m on m.id = v.memory_id
        where v.model = %1$s and v.principal_id = $1 and m.principal_id = $1 and memory_matches(m, $3)
        order by %2$s %3$s limit $4) nearest
      $sql$, p_model, v_distance, case when v_exact then '+ 0' else '' end)
      into v_ids using p_principal, p_vector, f, p_depth;
    exit when v_exact or cardinality(v_ids) = p_depth;
  end loop;
  return v_ids;
end $$;

-- Cosines of these memories with the query, as moved by memory_usual() and as a whole.
create function memory_cosines(p_model smallint, p_ids bigint[], p_moved text, p_vector text)
returns table (id bigint, moved real, cosine real) language plpgsql stable as $$
begin
  if p_model is null then
    return;
  end if;
  return query
    with asked as materialized (select p_moved::halfvec as moved, p_vector::halfvec as whole)
    select v.memory_id, (1 - (v.embedding <=> a.moved))::real, (1 - (v.embedding <=> a.whole))::real
    from asked a, memory_vectors v where v.model = p_model and v.memory_id = any(p_ids);
end $$;

-- For each of the first five turns, a later one elsewhere that says nearly the same, if there is one.
create function memory_corrections(p_model smallint, p_ids bigint[], p_at_least real)
returns table (id bigint, correction bigint) language plpgsql stable as $$
begin
  if p_model is null then
    return;
  end if;
  return query
    select distinct on (o.id) o.id, n.id
    from memories o join memory_vectors ov on ov.memory_id = o.id and ov.model = p_model
    join memories n on n.id = any(p_ids) and n.created_at > o.created_at
      and memory_surroundings(n) <> memory_surroundings(o)
    join memory_vectors nv on nv.memory_id = n.id and nv.model = p_model
    where o.id = any(p_ids[1:5]) and o.kind = 'turn' and n.kind = 'turn'
      and 1 - (nv.embedding <=> ov.embedding) >= p_at_least
    order by o.id, nv.embedding <=> ov.embedding, n.id desc;
end $$;

-- The end of a chain of superseded memories: the one that holds.
create function memory_newest(p_id bigint) returns bigint language sql stable set search_path = supaclaw, pg_temp as $$
  with recursive chain as (
    select id, superseded_by, 0 as step from memories where id = p_id
    union all
    select m.id, m.superseded_by, step + 1 from chain join memories m on m.id = chain.superseded_by where step < 20
  )
  select id from chain order by step desc limit 1
$$;

-- The rows with the greatest share of these words, those with less than p_least left out; none if that takes longer than
-- p_within. Looked at are at most 1,000, of the rarest words.
create function memory_recalled(p_principal uuid, p_words text[], p_at_most smallint, p_k int,
  p_least double precision, p_within interval)
returns table (id bigint, share double precision) language plpgsql stable set search_path = supaclaw, pg_temp as $$
#variable_conflict use_column
declare v_until timestamptz := clock_timestamp() + p_within; v_id bigint; v_share double precision;
  v_ids bigint[] := '{}'; v_shares double precision[] := '{}';
begin
  for v_id, v_share in
    with words as materialized (
      select word, idf / sum(idf) over () as share, sum(df) over (order by df, word) as running
      from memory_words(p_principal, p_words, 300)
    )
    select hit.id, words.share from words cross join lateral (
      select m.id from memories m
      where m.lexemes @@ quote_literal(word)::tsquery and m.principal_id = p_principal and m.label <= p_at_most
        and m.superseded_at is null and m.forgotten_at is null and (m.valid_to is null or m.valid_to > now())) hit
    where running <= 1000
  loop
    if clock_timestamp() > v_until then
      return;
    end if;
    v_ids := v_ids || v_id;
    v_shares := v_shares || v_share;
  end loop;
  return query select h.id, sum(h.share) from unnest(v_ids, v_shares) h (id, share)
    group by h.id having sum(h.share) >= p_least order by 2 desc, 1 desc limit p_k;
end $$;

-- The newest memory in place of each row that is out of date: a replaced one, what it was learned from, or a summary of
-- its conversation that has a word of it which the new one lacks.
create function memory_replacements(p_rows bigint[]) returns table (replaces bigint, id bigint, version text)
language sql stable set search_path = supaclaw, pg_temp as $$
  with old as (
    select m.id as row, m.id from memories m where m.id = any(p_rows)
    union select m.id, s.memory_id from memories m join memory_sources s using (message_id) where m.id = any(p_rows)
    union select m.id, g.id from memories m join memories g using (session_id)
      where m.id = any(p_rows) and m.kind = 'summary' and g.superseded_by is not null
  ), newer as (
    select distinct on (old.row) old.row, n.id, n.xmin
    from old join memories m on m.id = old.row join memories g on g.id = old.id and g.superseded_by is not null
    join memories n on n.id = memory_newest(g.id)
    where m.kind <> 'summary' or exists (
      select from unnest(tsvector_to_array(g.lexemes)) word
      where word = any (tsvector_to_array(m.lexemes)) and word <> all (tsvector_to_array(n.lexemes)))
    order by old.row, g.id desc
  )
  select newer.row, newer.id, newer.xmin::text from newer
  where not exists (select from old where old.row = newer.row and old.id = newer.id)
$$;

-- The memories that a session of this time begins with: the important, the new, pinned ones and preferences, and those
-- with a tag or of a category of p_tags.
create function bootstrap_rows(p_principal uuid, p_as_of timestamptz, p_at_most smallint, p_agent text, p_enough int,
  p_tags text[])
returns setof bigint language sql stable set search_path = supaclaw, pg_temp as $$
  with live as not materialized (
    select * from memories
    where principal_id = p_principal and kind = 'memory' and superseded_at is null and forgotten_at is null
      and agent = p_agent and created_at <= p_as_of and label <= p_at_most
      and (valid_to is null or valid_to > p_as_of)
  )
  (select id from live order by importance desc, id desc limit p_enough)
  union (select id from live order by id desc limit p_enough)
  union (select id from live where pinned or category = 'preference' or tags && '{core,preference}'
         order by importance desc, id desc limit p_enough)
  union (select id from live where cardinality(p_tags) > 0 and (tags && p_tags or category = any(p_tags))
         order by importance desc, id desc limit p_enough)
$$;

-- The newest chat that had ended by then, but p_session, with its summary of then or its last three messages. Until it has
-- a row of memory, what the agent said after something was forgotten may repeat that, so it is left out.
create function bootstrap_last(p_principal uuid, p_as_of timestamptz, p_at_most smallint, p_agent text, p_enough int,
  p_session uuid)
returns table (ended_at timestamptz, label smallint, lines text[], rows bigint[])
language sql stable set search_path = supaclaw, pg_temp as $$
  with last as (
    select s.id, s.ended_at, s.label from sessions s
    where s.principal_id = p_principal and s.ended_by_person and s.ended_at <= p_as_of
      and s.id is distinct from p_session and s.label <= p_at_most and s.agent = p_agent
    order by s.ended_at desc limit 1
  ), newest as (
    select * from memories where principal_id = p_principal and kind = 'summary' order by id desc limit p_enough
  ), said as (
    select m.id, t.id as row, case m.kind when 'user' then 'the user: ' else 'the agent: ' end || left(m.text, 200) line
    from messages m join last on m.session_id = last.id left join memories t on t.message_id = m.id
    where seq is not null and withdrawn is null and (m.kind = 'user' or (m.kind = 'assistant' and final))
      and t.forgotten_at is null and (t.id is not null or m.kind = 'user' or not exists (
        select from memories f where f.principal_id = p_principal and f.kind = 'memory'
          and f.forgotten_at > f.created_at and f.forgotten_at <= m.created_at))
    order by seq desc limit 3
  ), summary as (
    select n.id as row, n.text as line
    from newest n join last on n.session_id = last.id and n.created_at <= p_as_of and n.label <= p_at_most
    where n.forgotten_at is null and n.superseded_at is null order by n.id desc limit 1
  ), told as (
    select 0 as id, * from summary union all select * from said where not exists (select from summary)
  )
  select last.ended_at, last.label, array(select line from told order by id),
         array(select coalesce(told.row, 0) from told order by id)
  from last
$$;

-- A digest of both, which differs once any of their rows was changed, forgotten or deleted.
create function bootstrap_version(p_principal uuid, p_as_of timestamptz, p_at_most smallint, p_agent text,
  p_enough int, p_tags text[], p_session uuid)
returns text language sql stable set search_path = supaclaw, pg_temp as $$
  with before as materialized (
    select * from bootstrap_last(p_principal, p_as_of, p_at_most, p_agent, p_enough, p_session)
  )
  select md5(concat(
    (select string_agg(concat(id, ' ', xmin), ',' order by id) from memories
     where id in (select bootstrap_rows(p_principal, p_as_of, p_at_most, p_agent, p_enough, p_tags))),
    (select concat(ended_at, label, lines) from before),
    (select string_agg(r::text, ',' order by r.replaces)
     from memory_replacements(array(select unnest(rows) from before)) r)))
$$;

-- The memories that answer a query best (shown), and those kept back for their label that would have been among them.
--   z     how far a memory's cosine stands out, in standard deviations (see memory_usual)
--   words the share of the query's IDF mass that it contains; a word that nobody wrote counts as missed
--   b     z + 5 words: evidence;  h = the part of b above the last candidate's, which is lent to its surroundings
--   score b + .5 h of the row before + .25 of the second before + .2 of the one after + .35 of a memory learned from it
--           + 2 · share of the query in its surroundings + .4 · the best z there
--           + up to 1 for eight words and more, since few say little - .8 of a question, which seldom holds an answer
-- A later row that says nearly the same as one of the first five overtakes it, and so does its known replacement.
create function hybrid_search(p_principal uuid, p_words text[], p_vector text, p_model smallint, f memory_filter,
  p_k int, w_importance real default 0, w_recency real default 0)
returns table (id bigint, score real, words real, cosine real, shown boolean)
language plpgsql stable
set search_path = supaclaw, public, extensions, pg_temp set jit = off set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  depth constant int := case
    when cardinality(f.kinds) > 0 and f.kinds <@ '{memory,summary}'
    then greatest(40, 2 * p_k) else greatest(100, p_k) end;
  lenders constant int := 40;
  few constant int := 5000;                             -- rows that are compared one by one
  hits constant int := 1000;                            -- rows of the rarest words that are looked at among many
  everything memory_filter := f;
  v_model smallint := p_model; v_narrow boolean; v_matching int; v_floor_at int;
  v_words text[]; v_idf real[]; v_mass real; v_queries tsquery[]; v_weights real[];
  v_moved text; v_centre real; v_spread real; v_alike real;
  v_by_word bigint[]; v_near bigint[]; v_rows bigint[]; v_groups text[]; v_coverage real[];
begin
  everything.at_most := 2;
  select count(*) into v_matching from (
    select from memories m where m.principal_id = p_principal and memory_matches(m, everything) limit few + 1) m;
  v_narrow := v_matching <= few;
  v_floor_at := least(100, greatest(5, v_matching / 6));

  select array_agg(w.word order by w.df, w.word), array_agg(w.idf order by w.df, w.word), greatest(sum(w.idf), 1e-6),
         array_agg(quote_literal(w.word)::tsquery order by w.df, w.word) filter (where v_narrow or w.running <= hits)
  into v_words, v_idf, v_mass, v_queries
  from (select *, sum(df) over (order by df, word) as running from memory_words(p_principal, p_words, 2000)) w;
  v_weights := v_idf;
  if v_queries is null and v_words is not null then     -- common words only: rows that have all of them
    v_queries := array[(select string_agg(quote_literal(w), ' & ') from unnest(v_words) w)::tsquery];
    v_weights := array[v_mass];
  end if;

  with hits as materialized (
    select m.id, m.around, m.label <= f.at_most as shown, g
    from (select m.id, m.label, m.lexemes, memory_surroundings(m) as around from memories m
          where v_narrow and m.principal_id = p_principal and memory_matches(m, everything) offset 0) m,
         generate_subscripts(v_queries, 1) g where m.lexemes @@ v_queries[g]
    union all
    select hit.* from generate_subscripts(v_queries, 1) g cross join lateral (
      select m.id, memory_surroundings(m), m.label <= f.at_most, g from memories m
      where m.lexemes @@ v_queries[g] and m.principal_id = p_principal and memory_matches(m, everything)
      limit 4 * hits) hit
    where not v_narrow
  ), ranked as (
    select id, row_number() over (partition by shown order by sum(v_weights[g]) desc, id desc) as rank
    from hits group by id, shown
  ), covered as (
    select around, sum(v_weights[g]) / v_mass as share
    from (select distinct around, g from hits where shown) d group by around
  )
  select (select array_agg(id order by rank) from ranked where rank <= depth),
         (select array_agg(around order by around) from covered), (select array_agg(share order by around) from covered)
  into v_by_word, v_groups, v_coverage;

  if v_model is not null then
    select moved, centre, spread, pair_centre + 2.4 * pair_spread into v_moved, v_centre, v_spread, v_alike
    from memory_usual(p_principal, v_model, p_vector);
    if v_moved is null then
      v_model := null;                                  -- no row of theirs has a vector yet
    else
      v_near := memory_nearest(p_principal, v_model, v_moved, everything, depth, v_narrow);
      if exists (select from memories m where m.id = any(v_near) and m.label > f.at_most) then
        v_near := memory_nearest(p_principal, v_model, v_moved, f, depth, v_narrow) || v_near;
      end if;
    end if;
  end if;

  perform set_config('plan_cache_mode', 'force_generic_plan', true);
  with lending as materialized (
    select m.id, m.kind, m.session_id, m.path, array[m.place - 1, m.place + 1, m.place + 2] as beside
    from memories m where m.id = any(v_by_word[:lenders] || v_near[:lenders])
  )
  select array_agg(distinct found.id) into v_rows from (
    select unnest(v_by_word || v_near) as id
    union all
    select (n).id from lending l cross join lateral (
      select n from memories n
      where n.kind = 'turn' and n.session_id = l.session_id and n.place = any(l.beside) offset 0) t (n)
    where l.kind = 'turn' and memory_matches(n, f)
    union all
    select (n).id from lending l cross join lateral (
      select n from memories n
      where n.kind = 'chunk' and n.principal_id = p_principal and n.path = l.path and n.place = any(l.beside)
      offset 0) t (n)
    where l.kind = 'chunk' and memory_matches(n, f)
    union all
    select (n).id from lending l join memory_sources s on s.memory_id = l.id cross join lateral (
      select n from memories n where n.message_id = s.message_id offset 0) t (n)
    where memory_matches(n, f)
  ) found;

  return query
  with candidates as materialized (
    select m.id, memory_surroundings(m) as around, m.kind, m.place, m.message_id, m.importance, m.created_at,
           m.label <= f.at_most as shown, m.id = any(v_by_word || v_near) as found, m.id = any(v_near) as near,
           coalesce(held.idf, 0) / v_mass as words, c.cosine,
           coalesce((c.moved - v_centre) / v_spread, 0) as z,
           least(1, length(m.lexemes) / 8.0)
             - case when right(rtrim(coalesce(m.text, said.text)), 1) in ('?', '？', '؟') then 0.8 else 0 end as prior
    from memories m left join messages said on said.id = m.message_id
    left join memory_cosines(v_model, v_rows, v_moved, p_vector) c on c.id = m.id
    left join lateral (select sum(v_idf[array_position(v_words, a)]) as idf
                       from unnest(tsvector_to_array(m.lexemes)) a where a = any(v_words)) held on true
    where m.id = any(v_rows)
  ), evidence as (
    select *, z + 5 * coalesce(words, 0) as b,
           row_number() over (partition by found and shown order by z + 5 * words desc) as rank
    from candidates
  ), floor as (
    select coalesce(max(b) filter (where rank = v_floor_at),
                    case when v_model is null then 0 else min(b) end) as b,
           coalesce(min(z) filter (where near), 0) as z
    from evidence where found and shown
  ), lent as materialized (
    select e.*, case when e.found and e.shown then greatest(e.b - floor.b, 0) else 0 end as h, floor.z as least_z
    from evidence e, floor
  ), learned as materialized (                          -- from these messages
    select s.message_id, max(l.h) as h from lent l join memory_sources s on s.memory_id = l.id
    where l.h > 0 and l.kind <> 'turn' group by s.message_id
  ), placed as (
    select *, case when lag(place) over w = place - 1 then lag(h) over w else 0 end as before,
              case when lag(place) over w = place - 2 then lag(h) over w
                   when lag(place, 2) over w = place - 2 then lag(h, 2) over w else 0 end as second_before,
              case when lead(place) over w = place + 1 then lead(h) over w else 0 end as after,
              max(z) filter (where near and shown) over (partition by around) - least_z as best_z
    from lent window w as (partition by around order by place)
  ), scored as materialized (
    select p.id, p.words, p.cosine, p.shown,
           (p.b + 0.5 * p.before + 0.25 * p.second_before + 0.2 * p.after
            + 0.35 * coalesce(learned.h, 0)
            + 2 * coalesce(c.share, case when p.place is null then p.words end, 0)
            + 0.4 * coalesce(p.best_z, 0) + p.prior
            + w_importance * p.importance
            + w_recency * exp(-extract(epoch from now() - p.created_at) / 86400 / 30))::real as score
    from placed p left join unnest(v_groups, v_coverage) as c (around, share) using (around)
    left join learned using (message_id)
  ), pool as materialized (
    select *, row_number() over (order by score desc, id desc) as rank from scored where shown
  ), corrections as materialized (
    select x.correction as id, max(o.score) + 0.01 as raised
    from memory_corrections(v_model, array(select id from pool where rank <= 30 order by rank), v_alike) x
    join pool o on o.id = x.id group by x.correction
  ), corrected as (
    select p.*, greatest(p.score, x.raised) as raised from pool p left join corrections x using (id)
  ), replaced as (                                      -- by what is known to be newer: itself, and where it was said
    select n.id, max(o.raised) + 0.01 as raised
    from corrected o
    join memories old on old.id = o.id
    join lateral (select old.id as memory_id where old.superseded_by is not null
                  union select s.memory_id from memory_sources s where s.message_id = old.message_id) was on true
    join memories gone on gone.id = was.memory_id and gone.superseded_by is not null
    join lateral (select memory_newest(gone.id) as id
                  union select t.id from memory_sources s join memories t on t.message_id = s.message_id
                        where s.memory_id = memory_newest(gone.id)) newer on true
    join memories n on n.id = newer.id
    where o.rank <= 30 and n.id <> o.id and memory_matches(n, f)
    group by n.id
  ), final as (
    select coalesce(c.id, r.id) as id, greatest(c.raised, r.raised)::real as score, coalesce(c.words, 0)::real as words,
           c.cosine
    from corrected c full join replaced r using (id)
    order by 2 desc, 1 desc limit p_k
  )
  select id, score, words, cosine, true from final
  union all
  select s.id, s.score, s.words::real, s.cosine, false from scored s
  where not s.shown and s.score >= coalesce((select min(score) from final having count(*) >= p_k), 0)
  order by 5 desc, 2 desc, 1 desc;
end $$;


-- Trust --------------------------------------------------------------------------------------------------------------

-- The key that seals a member's transactions, see member(); members can't read it.
create table member_keys (
  one boolean default true primary key check (one),
  key bytea not null
);

-- Permissions given in advance, for exactly one call on exactly one state of what it changes.
create table grants (
  id bigint generated always as identity primary key,   -- shown to people as G3
  principal_id uuid not null references principals,     -- whose calls
  given_by uuid not null references principals,         -- the person who would be asked
  tool text not null,
  act text not null,                                    -- the class of the call
  arguments jsonb not null,                             -- all but the bounded one
  base text not null default '',
  bounded text,                                         -- the one argument that may be any number up to `at_most`
  at_most numeric,
  times_left int not null check (times_left >= 0),
  sum_left numeric check (sum_left >= 0),               -- of the bounded argument, over all calls
  expires_at timestamptz not null,
  revoked_at timestamptz,
  created_at timestamptz not null default now(),
  check ((bounded is null) = (at_most is null) and (sum_left is null or bounded is not null))
);
create index grants_live on grants (given_by, tool) where revoked_at is null and times_left > 0;

-- Questions that wait for a person's decision.
create table reviews (
  id bigint generated always as identity primary key,   -- shown to people as A17
  kind text not null check (kind in ('approval', 'review')),
  principal_id uuid not null references principals,     -- whose files and schedules the call works on
  asked_id uuid not null references principals,         -- the person who decides
  session_id uuid references sessions,                  -- where it came up
  -- The chat for question and outcome; null: where the decider wrote last:
  address_id bigint references addresses,
  task_id uuid,                                         -- the run; null: the gateway itself asks
  ordinal int,
  tool text not null,                                   -- with arguments and base, the exact call
  arguments jsonb not null,
  base text not null default '',                        -- sha256 of what the call changes, at the time of asking
  digest text not null,                                 -- of tool, arguments and base: what a yes is for
  preview text not null,                                -- what the person decides on, written by the gateway
  label smallint not null,                              -- of the session
  state text not null default 'open' check (state in ('open', 'approved', 'done', 'denied', 'expired', 'closed')),
  decided_by text,                                      -- '<channel>:<platform id>'
  decided_at timestamptz,
  started_at timestamptz,                               -- its call began
  told_at timestamptz,                                  -- its question was queued for delivery
  expires_at timestamptz,                               -- null: never
  created_at timestamptz not null default now(),
  act text not null default 'write what lasts',         -- the class of the call
  grant_id bigint references grants,                    -- which decided it
  response jsonb,                                       -- the answer to a `review`: {"approved", "comment"}
  reminded_at timestamptz                               -- the last reminder
);
create index reviews_open on reviews (asked_id, id) where state = 'open';
create index reviews_untold on reviews (id) where state = 'open' and told_at is null;
create unique index reviews_by_call on reviews (task_id, ordinal) where task_id is not null;
create index reviews_of_session on reviews (session_id, digest) where session_id is not null;
create index reviews_latest on reviews (asked_id, id desc) where state <> 'open';

-- Who decided what: append-only, each row hashed with the one before.
create table audit (
  seq bigint primary key,
  at timestamptz not null,
  event text not null,
  principal_id uuid,                                    -- whose data it is about; may outlive its row
  subject text not null,                                -- the number of the review, grant, …
  actor bytea not null,                                 -- like `detail` a keyed hash, so that erased data stays erased
  detail bytea not null,
  prev bytea not null,
  hash bytea not null                                   -- of the whole row and of `prev`
);
create function audit_kept() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise insufficient_privilege using message = 'the audit trail is only added to';
end $$;
create trigger audit_kept before delete or update or truncate on audit
  for each statement execute function audit_kept();

create table secrets (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,     -- of a shared one the owner
  shared boolean not null,                              -- for everybody without one of their own by this name
  name text not null,
  version int not null,                                 -- counts changes of the value and of its bindings
  key_id text not null,                                 -- the master key that wraps its data key
  wrapped bytea not null,
  sealed bytea not null,                                -- bound to all of the columns above and to the next three
  hosts text[] not null,                                -- where it may be sent
  tools text[] not null,                                -- which may send it
  place text not null,                                  -- where in a request; '': nowhere
  created_at timestamptz not null default now(),
  changed_at timestamptz not null default now(),        -- of the value
  last_used_at timestamptz,
  unique (principal_id, shared, name)
);
create function secrets_changed() returns trigger language plpgsql set search_path = supaclaw as $$
begin
  perform pg_notify('supaclaw_secrets', '');
  return null;
end $$;
create trigger secrets_changed after insert or delete or update of version, key_id on secrets
  for each statement execute function secrets_changed();

-- Content that the owner confirmed byte for byte, or has yet to: skills, and other things that can be changed behind
-- the owner's back. It belongs to the gateway, so no policy shows it to a member.
create table pins (
  kind text not null,
  name text not null,
  state text not null check (state in ('on', 'off', 'staged')),
  sha256 text not null,
  content bytea not null,                               -- the bytes, so that a change can be shown
  source text not null default '',                      -- where they came from
  changed_at timestamptz not null default now()
);
create unique index pins_by_name on pins (kind, name, (state = 'staged'));

-- A member's labels never fall.
create function label_kept() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise insufficient_privilege using message = 'a trust label never falls';
end $$;
create trigger sessions_label_kept before update of label on sessions
  for each row when (new.label < old.label and current_user = 'supaclaw_member') execute function label_kept();
create trigger schedules_label_kept before update of label on schedules
  for each row when (new.label < old.label and current_user = 'supaclaw_member') execute function label_kept();

-- Whatever changes of a schedule voids the plan of its runs.
create function schedule_plan_voided() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  new.plan := null;
  return new;
end $$;
create trigger schedules_plan_voided before update on schedules
  for each row when (
    (old.principal_id, old.name, old.prompt, old.run_at, old.cron, old.zone, old.include_session_history, old.label)
    is distinct from
    (new.principal_id, new.name, new.prompt, new.run_at, new.cron, new.zone, new.include_session_history, new.label))
  execute function schedule_plan_voided();

-- The principal of the transaction, from the token in the setting supaclaw.member: its id (16 bytes), its expiry (8),
-- and a seal with the key on both (32). Null without a token, or with a forged or expired one. The setting alone proves
-- nothing, since anyone who can run SQL can set it.
create function member() returns uuid
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  said text := current_setting('supaclaw.member', true);
  token bytea;
  k bytea;
begin
  if said is null or said !~ '^[0-9a-f]{112}$' then
    return null;
  end if;
  token := decode(said, 'hex');
  select key into k from supaclaw.member_keys;
  if substr(token, 25) <> sha256(k || sha256(k || substr(token, 1, 24)))
     or ('x' || encode(substr(token, 17, 8), 'hex'))::bit(64)::bigint < extract(epoch from statement_timestamp()) then
    return null;
  end if;
  return encode(substr(token, 1, 16), 'hex')::uuid;
end $$;


-- Rights -------------------------------------------------------------------------------------------------------------

-- Row level security is on for every table, so a role without a policy sees nothing. The gateway connects as the owner
-- of the tables. The tools of members run as supaclaw_member, which sees only the rows of member(), and writes only
-- rows that refer, by each foreign key, to rows it sees, and whose label isn't the owner's.

do $$
declare t text;
begin
  for t in select tablename from pg_tables where schemaname = 'supaclaw' loop
    execute format('alter table %I enable row level security', t);
  end loop;
  -- Read-only tables, and those whose rows refer to nothing but their person:
  foreach t in array array[
    'api_tokens', 'audit', 'grants', 'imports', 'inbox', 'journals', 'links', 'memory_df', 'memory_files',
    'memory_gone', 'memory_stats', 'memory_unembedded', 'pairings', 'provider_fields', 'reviews', 'running_commands',
    'schedule_runs', 'secrets', 'synced_files', 'task_steps', 'tasks', 'thoughts', 'triggers', 'usage'] loop
    execute format('create policy own on %I to supaclaw_member using (principal_id = (select member()))', t);
  end loop;
end $$;

create policy own on principals to supaclaw_member using (id = (select member()));
create policy known on memory_models for select to supaclaw_member using (true);
create policy own on sessions to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member()) and label >= 1);
create policy own on files to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member()) and label >= 1);
create policy own on contents to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member()) and label >= 1);
create policy own on addresses to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member())
    and (session_id is null or exists (select from sessions theirs where theirs.id = session_id)));
create policy own on messages to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member())
    and (address_id is null or exists (select from addresses theirs where theirs.id = address_id))
    and answered_by is null
    and (journal_id is null or exists (select from journals theirs where theirs.id = journal_id))
    and (session_id is null or exists (select from sessions theirs where theirs.id = session_id))
    and (task_id is null or exists (select from tasks theirs where theirs.id = task_id))
    and label >= 1 and kind in ('assistant', 'notice'));
create policy own on attachments to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member())
    and (file_id is null or exists (select from files theirs where theirs.id = file_id))
    and (message_id is null or exists (select from messages theirs where theirs.id = message_id))
    and (session_id is null or exists (select from sessions theirs where theirs.id = session_id)));
create policy own on outbox to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member())
    and (address_id is null or exists (select from addresses theirs where theirs.id = address_id))
    and (file_id is null or exists (select from files theirs where theirs.id = file_id))
    and (message_id is null or exists (select from messages theirs where theirs.id = message_id)));
create policy own on todo_lists to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member()) and label >= 1
    and exists (select from tasks theirs where task_id = theirs.id));
create policy own on schedules to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member())
    and (address_id is null or exists (select from addresses theirs where theirs.id = address_id))
    and (task_id is null or exists (select from tasks theirs where theirs.id = task_id)) and label >= 1);
create policy own on memories to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member()) and label >= 1
    and (session_id is null or exists (select from sessions theirs where theirs.id = session_id))
    and (message_id is null or exists (
      select from messages theirs where theirs.id = message_id and theirs.label <= memories.label)));
create policy own on memory_sources to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member())
    and (message_id is null or exists (select from messages theirs where theirs.id = message_id)));
create policy own on memory_progress to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member())
    and (session_id is null or exists (select from sessions theirs where theirs.id = session_id)));

revoke all on all functions in schema supaclaw from public;
grant execute on function member, bootstrap_last, bootstrap_rows, bootstrap_version, hybrid_search, memory_corrections,
  memory_cosines, memory_matches, memory_nearest, memory_newest, memory_replacements, memory_surroundings, memory_usual,
  memory_words, say to supaclaw_member;

grant usage on schema supaclaw to supaclaw_member;
grant select (id, principal_id, session_id, status, seq) on tasks to supaclaw_member;
grant select, insert, update (text, category, importance, tags, pinned, lexemes, content_hash, counted, seen_count,
  updated_at, superseded_by, superseded_at, forgotten_at) on memories to supaclaw_member;
grant select, update (created_at) on addresses to supaclaw_member;
grant select, insert on attachments to supaclaw_member;
grant select, insert, update on files to supaclaw_member;
grant select, insert, update on contents to supaclaw_member;
grant select (id, address_id) on inbox to supaclaw_member;
grant select (id, principal_id, session_id, path, closed_at, filed_at) on journals to supaclaw_member;
grant select on memory_df to supaclaw_member;
grant select on memory_models to supaclaw_member;
grant select, insert, update (seq, place) on memory_progress to supaclaw_member;
grant select, insert on memory_sources to supaclaw_member;
grant select on memory_stats to supaclaw_member;
grant select, insert on messages to supaclaw_member;
grant select, insert on outbox to supaclaw_member;
grant select, insert, update on todo_lists to supaclaw_member;
grant select on remembered to supaclaw_member;
grant select on running_commands to supaclaw_member;
grant select on schedule_runs to supaclaw_member;
grant select, insert, delete, update on schedules to supaclaw_member;
grant select, update (label, next_seq, spoken_at) on sessions to supaclaw_member;

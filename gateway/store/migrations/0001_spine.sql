-- The spine: who talks, where, what arrived, what was said, what is sent, and the work in between.
-- Every table that holds a person's data carries principal_id; row level security is on for all and no policy
-- exists, so a role that does not own the tables sees nothing.

create table principals (
  id uuid primary key,
  role text not null check (role in ('owner', 'member')),
  name text not null,
  identities text[] not null default '{}',              -- '<channel>:<platform id>'
  created_at timestamptz not null default now()
);
create unique index principals_one_owner on principals (role) where role = 'owner';

create table sessions (
  id uuid primary key,
  principal_id uuid not null references principals,
  label smallint not null default 0,                    -- highest trust label of what it holds; never falls
  next_seq int not null default 1,
  digest text not null default '',                      -- of the spoken texts so far: how /v1 finds its session
  started_at timestamptz not null default now(),
  ended_at timestamptz
);
create index sessions_by_digest on sessions (principal_id, digest) where digest <> '' and ended_at is null;

create table addresses (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  channel text not null,
  account text not null,
  chat text not null,
  thread text not null default '',
  private boolean not null,
  session_id uuid not null references sessions,         -- the current one
  created_at timestamptz not null default now(),
  unique (channel, account, chat, thread)
);
create index addresses_by_session on addresses (session_id);

create table tasks (
  id uuid primary key,
  master_id uuid not null,
  parent_id uuid references tasks on delete cascade,
  depth int not null default 0,
  kind text not null,
  lane text not null,
  principal_id uuid not null references principals,
  session_id uuid references sessions,
  instance_id uuid,                                     -- the gateway that owns the address, else null: anyone's
  agent text not null default 'default',
  status text not null default 'pending' check (status in
    ('pending', 'running', 'pending_subtask', 'needs_human_review', 'completed', 'failed', 'cancelled')),
  input jsonb not null default '{}',
  output jsonb,
  error text,
  priority smallint not null default 0,
  run_at timestamptz not null default now(),
  seq bigint generated always as identity,
  dedupe text,
  attempts int not null default 0,
  max_attempts int not null default 3,
  open_children int not null default 0,
  worker uuid,
  token bigint not null default 0,                      -- the fence: +1 at each claim
  lease_until timestamptz,                              -- in no index, so that a beat stays a heap-only update
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  check (kind <> 'chat' or (session_id is not null and status in ('pending', 'running', 'completed', 'failed', 'cancelled')))
) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02);
create index tasks_claimable on tasks (lane, priority desc, run_at, seq) where status = 'pending';
create index tasks_running on tasks (id) where status = 'running';
create unique index tasks_one_live_chat on tasks (session_id) where kind = 'chat' and status in ('pending', 'running');
create unique index tasks_dedupe on tasks (dedupe)
  where dedupe is not null and status not in ('completed', 'failed', 'cancelled');
create index tasks_by_master on tasks (master_id, depth);
create index tasks_by_parent on tasks (parent_id);

create table task_steps (
  id bigint generated always as identity primary key,
  task_id uuid not null references tasks on delete cascade,
  principal_id uuid not null references principals,
  kind text not null check (kind in ('model', 'tool', 'hand-off', 'note')),
  name text not null,                                   -- the model or the tool
  tokens_in int not null default 0,
  tokens_out int not null default 0,
  tokens_cached int not null default 0,
  cost_usd double precision not null default 0,
  latency_ms int not null default 0,
  failed jsonb not null default '[]',                   -- tries before this one: [{model, error, message}]
  created_at timestamptz not null default now()
);
create index task_steps_by_task on task_steps (task_id, id);
create index task_steps_by_day on task_steps (created_at);

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
  task_id uuid references tasks,
  ordinal int,                                          -- tool call: its key within the task
  answered_by bigint references messages,
  closed_at timestamptz,                                -- user: will not be answered (/new, /stop)
  created_at timestamptz not null default now(),
  check (kind = 'user' or seq is not null)
);
create unique index messages_in_order on messages (session_id, seq) where seq is not null;
create index messages_open on messages (session_id, id)
  where kind = 'user' and answered_by is null and closed_at is null;
create unique index messages_tool_call on messages (task_id, ordinal, kind) where ordinal is not null;
create index messages_by_platform on messages (address_id, platform_id) where platform_id is not null;
create index messages_answers on messages (answered_by) where answered_by is not null;

create table inbox (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  address_id bigint not null references addresses,
  channel text not null,
  account text not null,
  chat text not null,
  platform_id text not null,
  kind text not null check (kind in ('message', 'edit', 'command', 'button')),
  text text not null default '',                        -- of commands and edits; a message's text is its row
  platform_time timestamptz not null,
  received_at timestamptz not null default now(),
  message_id bigint references messages,                -- the message it became, or the notice that answers a command
  handled_at timestamptz,
  unique (channel, account, chat, platform_id)
);
create index inbox_unhandled on inbox (id) where handled_at is null;

create table outbox (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  address_id bigint not null references addresses,
  message_id bigint not null references messages,
  part int not null default 0,
  text text not null,
  notice boolean not null default false,                -- about delivery itself: gets no notice of its own
  state text not null default 'pending' check (state in ('pending', 'sending', 'sent', 'uncertain', 'failed')),
  attempts int not null default 0,
  run_at timestamptz not null default now(),
  platform_id text,
  error text,
  created_at timestamptz not null default now(),
  sending_at timestamptz,
  sent_at timestamptz,
  unique (message_id, part)
);
create index outbox_open on outbox (address_id, id) where state in ('pending', 'sending');
create index outbox_by_address on outbox (address_id, id);

create table files (
  id uuid primary key default gen_random_uuid(),
  principal_id uuid not null references principals,
  path text not null,
  mime text not null,
  size bigint not null,
  sha256 text not null,
  label smallint not null default 0,
  origin text not null default 'agent',
  description text not null default '',
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  unique (principal_id, path)
);

create table api_tokens (
  id uuid primary key default gen_random_uuid(),
  principal_id uuid not null references principals,
  name text not null,
  kind text not null default 'bearer' check (kind in ('bearer', 'cookie')),
  sha256 text not null unique,
  scopes text[] not null,
  created_at timestamptz not null default now(),
  last_used_at timestamptz,
  expires_at timestamptz,
  revoked_at timestamptz
);
create unique index api_tokens_by_name on api_tokens (name) where kind = 'bearer' and revoked_at is null;

create table leases (
  name text primary key,
  holder uuid not null,
  expires_at timestamptz not null
);

create table meta (
  key text primary key,
  value jsonb not null
);

do $$
declare t text;
begin
  for t in select tablename from pg_tables where schemaname = 'supaclaw' loop
    execute format('alter table supaclaw.%I enable row level security', t);
  end loop;
end $$;

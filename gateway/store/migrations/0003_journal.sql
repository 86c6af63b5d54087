-- The journal, compaction and the first memories: which file a row's readable copy lies in, how long a message is,
-- what a summary stands for, and what was worth keeping of a conversation.

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

-- One table for all that can be recalled: turns of conversations, what was learned of them, their summaries, passages of
-- files. Columns and tables only, at once whatever the rows: what is older is indexed afterwards, by the job `embed`.

alter table sessions add agent text not null default 'default';  -- whose conversation: 'default', or a program's

drop index memories_once;
alter table memories
  alter text drop not null,                             -- turn: null, for its text is the message's
  alter session_id drop not null,
  alter first_seq drop not null,                        -- the stretch of facts older than memory_sources
  alter last_seq drop not null,
  add kind text not null default 'memory' check (kind in ('turn', 'memory', 'summary', 'chunk')),
  add category text default 'fact' check (category in
    ('preference', 'decision', 'fact', 'context', 'project', 'person', 'correction')),
  add importance double precision not null default 0.5 check (importance between 0 and 1),
  add tags text[] not null default '{}',
  add pinned boolean not null default false,
  add language text,
  add agent text not null default 'default',
  add message_id bigint references messages on delete cascade,
  add place int,                                        -- among the turns of its session, the chunks of its file
  add path text,                                        -- chunk: its file, below the principal's file root
  add page int,
  add lexemes tsvector,                                 -- null: older than them
  add content_hash bytea,                               -- memory: of its normalised text
  add counted boolean not null default false,           -- in memory_df and memory_stats
  add seen_count int not null default 1,
  add event_at timestamptz,                             -- what time it is about
  add updated_at timestamptz not null default now(),
  add valid_to timestamptz,
  add superseded_by bigint,
  add superseded_at timestamptz,
  add forgotten_at timestamptz,                         -- can be undone
  add unique (principal_id, id),
  add foreign key (principal_id, superseded_by) references memories (principal_id, id)
    on delete set null (superseded_by),
  add check ((kind = 'turn') = (message_id is not null)),
  add check ((kind = 'turn') = (text is null)),
  add check ((kind = 'memory') = (category is not null)),
  add check ((kind = 'chunk') = (path is not null)),
  add check ((kind in ('turn', 'chunk')) = (place is not null));
alter table memories alter category drop default;
create unique index memories_turns on memories (message_id) where message_id is not null;
create unique index memories_places on memories (session_id, place) where kind = 'turn';
create unique index memories_live on memories (principal_id, agent, content_hash)
  where content_hash is not null and superseded_at is null and forgotten_at is null;
create index memories_chunks on memories (principal_id, path) where kind = 'chunk';
create index memories_kept on memories (principal_id, kind, id) where kind in ('memory', 'summary');
create index memories_uncounted on memories (id) where not counted;
create index memories_by_lexeme on memories using gin (lexemes);

-- A row with the words of its message, if it is a turn.
create view remembered with (security_invoker = true) as
select m.id, m.principal_id, m.kind, coalesce(m.text, said.text) as text, m.category, m.importance, m.tags, m.pinned,
       m.label, m.origin, m.agent, m.session_id, m.message_id, coalesce(said.kind, '') as role, m.path, m.page,
       m.event_at, m.created_at, m.valid_to, m.superseded_by, m.superseded_at, m.forgotten_at, m.seen_count
from memories m left join messages said on said.id = m.message_id;

create table memory_sources (                           -- the messages it was learned from
  memory_id bigint not null,
  message_id bigint not null references messages on delete cascade,
  principal_id uuid not null references principals,
  primary key (memory_id, message_id),
  foreign key (principal_id, memory_id) references memories (principal_id, id) on delete cascade
);
create index memory_sources_by_message on memory_sources (message_id);

create table memory_progress (                          -- how far the turns of a session are rows
  session_id uuid primary key references sessions on delete cascade,
  principal_id uuid not null references principals,
  seq int not null,                                     -- the last place of the transcript that was looked at
  place int not null                                    -- the last one given to a turn
);

create table memory_files (                             -- the files whose passages are rows, or that have none
  principal_id uuid not null references principals,
  path text not null,
  version text not null,                                -- tells a changed one
  primary key (principal_id, path)
);

create table memory_df (                                -- in how many rows of a principal a word stands
  principal_id uuid not null references principals,
  lexeme text not null,
  df int not null,
  primary key (principal_id, lexeme)
) with (fillfactor = 80);

create table memory_stats (
  principal_id uuid primary key references principals,
  n bigint not null default 0                           -- rows that are counted
);

create table memory_gone (                              -- counted, and no longer so: to be taken off by the job
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,
  lexemes tsvector not null
);

create table memory_unembedded (                        -- what the vectors lack
  memory_id bigint primary key references memories on delete cascade,
  principal_id uuid not null references principals
);
comment on table memory_unembedded is 'derived: left out of backups';

create table memory_models (                            -- what made vectors
  id smallint generated always as identity primary key,
  name text not null unique,
  dimensions int not null,
  wanted boolean not null,                              -- memory_unembedded is what lacks its vectors
  current boolean not null                              -- searched by
);
create unique index memory_models_wanted on memory_models (wanted) where wanted;
create unique index memory_models_current on memory_models (current) where current;
comment on table memory_models is 'derived: left out of backups';
alter table memory_models enable row level security;
create policy known on memory_models for select to supaclaw_member using (true);

create function memories_to_embed() returns trigger
language plpgsql security definer set search_path = supaclaw, pg_temp as $$
begin
  insert into memory_unembedded (memory_id, principal_id) values (new.id, new.principal_id) on conflict do nothing;
  return null;
end $$;
create trigger memories_to_embed after insert or update of text on memories
  for each row execute function memories_to_embed();

create function memories_gone() returns trigger
language plpgsql security definer set search_path = supaclaw, pg_temp as $$
begin
  insert into memory_gone (principal_id, lexemes) values (old.principal_id, old.lexemes);
  return null;
end $$;
create trigger memories_gone after delete on memories for each row when (old.counted) execute function memories_gone();
create trigger memories_changed after update of counted on memories
  for each row when (old.counted and not new.counted) execute function memories_gone();

-- Members see their own rows; a turn of theirs is trusted no more than its message.
do $$
declare t text; r text;
begin
  foreach t in array array['memory_sources', 'memory_progress', 'memory_files', 'memory_df', 'memory_stats',
                           'memory_gone', 'memory_unembedded'] loop
    execute format('alter table %I enable row level security', t);
    execute format('create policy own on %I to supaclaw_member using (principal_id = (select member()))', t);
  end loop;
  revoke all on function memories_to_embed(), memories_gone() from public;
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on all tables in schema supaclaw from %I', r);
      execute format('revoke all on function supaclaw.memories_to_embed(), supaclaw.memories_gone() from %I', r);
    end if;
  end loop;
end $$;
alter policy own on memories with check (
  principal_id = (select member()) and label >= 1
  and (memories.session_id is null or exists (select from sessions theirs where theirs.id = memories.session_id))
  and (memories.message_id is null or exists (
    select from messages theirs where theirs.id = memories.message_id and theirs.label <= memories.label)));
alter policy own on memory_sources with check (
  principal_id = (select member())
  and (memory_sources.message_id is null
       or exists (select from messages theirs where theirs.id = memory_sources.message_id)));
alter policy own on memory_progress with check (
  principal_id = (select member())
  and (memory_progress.session_id is null
       or exists (select from sessions theirs where theirs.id = memory_progress.session_id)));
grant select on remembered to supaclaw_member;
grant select, insert on memories, memory_sources to supaclaw_member;
grant update (text, category, importance, tags, pinned, lexemes, content_hash, counted, seen_count, updated_at,
              superseded_by, superseded_at, forgotten_at) on memories to supaclaw_member;
grant select, insert, update (seq, place) on memory_progress to supaclaw_member;
grant select on memory_df, memory_stats, memory_models to supaclaw_member;

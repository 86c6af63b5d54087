-- Trust follows content, and what lasts is asked for: the label of every content a workspace has held, and the
-- questions that wait for a person's yes.

create table contents (
  principal_id uuid not null references principals,
  sha256 text not null,
  label smallint not null,                              -- the most trusted it was ever written or vouched for with
  source text not null,                                 -- 'agent', 'upload', 'template', 'owner', 'restore', 'before'
  created_at timestamptz not null default now(),
  primary key (principal_id, sha256)
);
-- Whose workspace holds files older than this: until they are listed, at the next start, an unknown one is untrusted.
insert into contents (principal_id, sha256, label, source) select id, 'before', 2, 'before' from principals;
grant select (principal_id, path, filed_at) on journals to supaclaw_member;

create table reviews (
  id bigint generated always as identity primary key,   -- people know it as A17
  kind text not null check (kind in ('approval', 'review')),
  principal_id uuid not null references principals,     -- whose files and schedules the call works on
  asked_id uuid not null references principals,         -- whose yes counts
  session_id uuid references sessions,                  -- where it was asked for
  address_id bigint references addresses,               -- where its question and its outcome are told; null: where
                                                        -- the asked person wrote last
  task_id uuid references tasks,                        -- the tool call; null: the gateway itself asks
  ordinal int,
  tool text not null,                                   -- the exact call, and the state of what it changes
  arguments jsonb not null,
  base text not null default '',                        -- sha256 of what it changes, as it was when asked
  digest text not null,                                 -- of tool, arguments and base: the yes is to this
  preview text not null,                                -- what the person decides on, made by the gateway
  label smallint not null,                              -- of the session it was asked in
  state text not null default 'open' check (state in ('open', 'approved', 'done', 'denied', 'expired')),
  decided_by text,                                      -- '<channel>:<platform id>'
  decided_at timestamptz,
  started_at timestamptz,                               -- its call has begun to run
  told_at timestamptz,                                  -- its question is on its way
  expires_at timestamptz,                               -- null: it waits for ever
  created_at timestamptz not null default now()
);
create index reviews_open on reviews (asked_id, id) where state = 'open';
create index reviews_untold on reviews (id) where state = 'open' and told_at is null;
create unique index reviews_by_call on reviews (task_id, ordinal) where task_id is not null;

create index reviews_of_session on reviews (session_id, digest) where session_id is not null;

alter table inbox add column sender text not null default '';   -- '<channel>:<platform id>'; '' decides nothing

do $$
declare t text; r text;
begin
  foreach t in array array['contents', 'reviews'] loop
    execute format('alter table %I enable row level security', t);
    execute format('create policy own on %I to supaclaw_member using (principal_id = '
      '(select nullif(current_setting(''supaclaw.principal'', true), '''')::uuid))', t);
  end loop;
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on all tables in schema supaclaw from %I', r);
    end if;
  end loop;
end $$;
grant select, insert, update on contents to supaclaw_member;

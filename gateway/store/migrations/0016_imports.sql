-- What was imported: by the hash of its content it is known again, so that the same file can be imported any number of
-- times, and what was forgotten since does not come back.

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

-- An imported message is known by the id it had, or by its content; and it is in no journal, which is a copy of what was
-- said here.
create unique index messages_imported on messages (session_id, platform_id) where origin like 'import:%';
drop index messages_unfiled;
create index messages_unfiled on messages (session_id) where journal_id is null and origin not like 'import:%';

alter table imports enable row level security;
create policy own on imports to supaclaw_member using (principal_id = (select member()));
do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on all tables in schema supaclaw from %I', r);
    end if;
  end loop;
end $$;

-- Values that the model never sees, sealed: the key that opens them is not in the database.

create table secrets (
  id bigint generated always as identity primary key,
  principal_id uuid not null references principals,     -- whose it is; of a shared one the owner
  shared boolean not null,                              -- for everybody, unless they have one of their own by this name
  name text not null,
  version int not null,                                 -- counts every change, of the value or of what it is bound to
  key_id text not null,                                 -- which master key wraps its data key
  wrapped bytea not null,
  sealed bytea not null,                                -- bound to all of the columns above, and to the next three
  hosts text[] not null,                                -- where it may be sent to
  tools text[] not null,                                -- by whom
  place text not null,                                  -- and in which place of a request; '': nowhere
  created_at timestamptz not null default now(),
  changed_at timestamptz not null default now(),        -- the value
  last_used_at timestamptz,
  unique (principal_id, shared, name)
);

create function secrets_changed() returns trigger language plpgsql set search_path = supaclaw as $$
begin
  perform pg_notify('supaclaw_secrets', '');
  return null;
end $$;
revoke all on function secrets_changed() from public;
create trigger secrets_changed after insert or delete or update of version, key_id on secrets
  for each statement execute function secrets_changed();

alter table secrets enable row level security;
create policy own on secrets to supaclaw_member using (principal_id = (select member()));
do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on secrets from %I', r);
      execute format('revoke all on function supaclaw.secrets_changed() from %I', r);
    end if;
  end loop;
end $$;

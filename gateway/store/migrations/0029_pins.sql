-- What the owner confirmed, byte for byte, and what waits for it: skills, and whatever else others may change behind the
-- owner's back. It is of the gateway, not of a person: no policy lets a member see it.
create table pins (
  kind text not null,
  name text not null,
  state text not null check (state in ('on', 'off', 'staged')),
  sha256 text not null,
  content bytea not null,                                -- the bytes themselves, so that a change can be shown
  source text not null default '',                       -- where they came from
  changed_at timestamptz not null default now()
);
create unique index pins_by_name on pins (kind, name, (state = 'staged'));
alter table pins enable row level security;
do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on pins from %I', r);
    end if;
  end loop;
end $$;

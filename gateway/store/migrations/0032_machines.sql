-- Who works on this database. A running instance has a lease as well, and so has each channel it holds open.
create table instances (
  id uuid primary key,
  name text not null,                                   -- of its machine, for people
  kind text not null check (kind in ('gateway', 'worker')),
  started_at timestamptz not null default now(),
  stopped_at timestamptz                                -- in order; null if it runs or died
);

-- What lies in the files of one machine only: the workspace, and the state of channels that keep it there.
create table homes (
  thing text primary key,
  instance_id uuid not null references instances on delete cascade
);

alter table instances enable row level security;
alter table homes enable row level security;
do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on instances, homes from %I', r);
    end if;
  end loop;
end $$;

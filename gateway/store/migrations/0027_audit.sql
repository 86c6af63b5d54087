-- What was allowed, and a record that shows when a part of it is gone: standing grants, and the audit trail.

alter table reviews add column act text not null default 'write what lasts';   -- the class of the call
alter table reviews drop constraint reviews_state_check;
alter table reviews add constraint reviews_state_check
  check (state in ('open', 'approved', 'done', 'denied', 'expired', 'closed'));
-- A yes is bound to its conversation from now on, so what waits in one has to be asked for again.
update reviews set state = 'closed' where state = 'open' and session_id is not null;

create table grants (
  id bigint generated always as identity primary key,   -- people know it as G3
  principal_id uuid not null references principals,     -- for whose calls
  given_by uuid not null references principals,         -- the person who is asked about them
  tool text not null,                                   -- exactly this call, on exactly these contents
  act text not null,
  arguments jsonb not null,                             -- every argument, but the bounded one
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
alter table reviews add column grant_id bigint references grants;
create index reviews_latest on reviews (asked_id, id desc) where state <> 'open';

create table audit (
  seq bigint primary key,
  at timestamptz not null,
  event text not null,
  principal_id uuid,                                    -- whose data it is about; an id that may outlive its row
  subject text not null,                                -- the number of what it is about
  actor bytea not null,                                 -- keyed hashes, so that what was erased stays erased
  detail bytea not null,
  prev bytea not null,
  hash bytea not null                                   -- of all of this and of the row before
);
create function audit_kept() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise insufficient_privilege using message = 'the audit trail is only added to';
end $$;
create trigger audit_kept before update or delete or truncate on audit execute function audit_kept();

do $$
declare t text; r text;
begin
  foreach t in array array['grants', 'audit'] loop
    execute format('alter table %I enable row level security', t);
    execute format('create policy own on %I to supaclaw_member using (principal_id = (select member()))', t);
  end loop;
  revoke all on function audit_kept() from public;
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on all tables in schema supaclaw from %I', r);
      execute format('revoke all on function supaclaw.audit_kept() from %I', r);
    end if;
  end loop;
end $$;

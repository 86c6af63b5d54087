-- Who may talk: strangers that ask to be let in, codes that join a person's accounts, and the role whose every
-- statement sees one member's rows only.

create table pairings (
  id bigint generated always as identity primary key,
  principal_id uuid references principals,              -- the member this became; null until let in
  channel text not null,                                -- where and as whom they asked
  account text not null,
  chat text not null,
  thread text not null,
  sender text not null,
  name text not null,
  code text not null,
  state text not null default 'open' check (state in ('open', 'approved', 'denied')),
  asked_at timestamptz not null default now(),
  expires_at timestamptz not null default now() + interval '10 minutes',
  decided_at timestamptz,
  unique (channel, sender),
  check (state <> 'approved' or principal_id is not null)
);
create unique index pairings_by_code on pairings (code) where state = 'open';

create table links (
  code text primary key,
  principal_id uuid not null references principals,
  address_id bigint not null references addresses,      -- its session is the one to join
  expires_at timestamptz not null default now() + interval '10 minutes'
);
create index links_by_address on links (address_id);

create table guesses (                                  -- wrong codes, by who gives them
  who text primary key,
  wrong int not null default 1,
  until timestamptz not null default now() + interval '10 minutes'
);

do $$
declare t text;
begin
  foreach t in array array['pairings', 'links', 'guesses'] loop
    execute format('alter table %I enable row level security', t);
  end loop;
end $$;

-- A running gateway keeps in memory who is let in; whoever changes that, tells it. What strangers do changes nothing,
-- and a new member with one account is let in by a rule or by a pairing.
create function people_told() returns trigger language plpgsql set search_path = supaclaw as $$
begin
  perform pg_notify('supaclaw_people', '');
  return null;
end $$;
revoke all on function people_told() from public;
create trigger principals_told after update on principals
  for each row when (old.identities <> new.identities) execute function people_told();
create trigger pairings_told after update on pairings
  for each row when (old.state <> new.state and 'approved' in (old.state, new.state)) execute function people_told();

-- The role of members' tools. It sees rows of the principal that the transaction names, and only in tables that a tool
-- needs; a table that is added later needs its policy, too.
do $$
declare
  able text := case when current_setting('server_version_num')::int >= 160000 then 'SET' else 'MEMBER' end;
  t text;
begin
  begin
    if not exists (select from pg_roles where rolname = 'supaclaw_member') then
      create role supaclaw_member nologin;
    end if;
    if not pg_has_role('supaclaw_member', able) then
      execute format('grant supaclaw_member to %I', current_user);
    end if;
  exception when insufficient_privilege then
    raise exception using errcode = 'SW002', message = format(
      'The database needs a role for members, which ours may not make; let an administrator run once: '
      'create role supaclaw_member nologin; grant supaclaw_member to %I;', current_user);
  end;
  for t in select table_name from information_schema.columns
           where table_schema = 'supaclaw' and column_name = 'principal_id' loop
    execute format('create policy own on %I to supaclaw_member using (principal_id = '
      '(select nullif(current_setting(''supaclaw.principal'', true), '''')::uuid))', t);
  end loop;
  create policy own on principals to supaclaw_member
    using (id = (select nullif(current_setting('supaclaw.principal', true), '')::uuid));
end $$;
grant usage on schema supaclaw to supaclaw_member;
grant select, insert, update on files to supaclaw_member;
-- Saying something in a chat of one's own: the chat and its session are locked, which takes a right to update.
grant select, insert on messages, attachments, outbox to supaclaw_member;
grant select, update (created_at) on addresses to supaclaw_member;
grant select, update (next_seq, label) on sessions to supaclaw_member;
grant select (id, address_id) on inbox to supaclaw_member;
grant select (id, session_id, closed_at) on journals to supaclaw_member;
grant select (principal_id, session_id, status) on tasks to supaclaw_member;

do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on all tables in schema supaclaw from %I', r);
      execute format('revoke all on function supaclaw.people_told() from %I', r);
    end if;
  end loop;
end $$;

-- Whose rows a member's tools see is proved by a token that the gateway signs; and what a row refers to must be theirs.

create table member_keys (
  one boolean primary key default true check (one),
  key bytea not null
);
alter table member_keys enable row level security;
insert into member_keys (key)
  select sha256(string_agg(uuid_send(gen_random_uuid()), ''::bytea)) from generate_series(1, 4);

-- The principal of the transaction's token: its id (16 bytes), when it ends (8), and the key's seal on both (32). Null
-- for none, a forged or an old one. A setting alone proves nothing, for whoever speaks SQL may set it.
create function member() returns uuid
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
  said text := current_setting('supaclaw.member', true);
  token bytea;
  k bytea;
begin
  if said is null or said !~ '^[0-9a-f]{112}$' then
    return null;
  end if;
  token := decode(said, 'hex');
  select key into k from supaclaw.member_keys;
  if substr(token, 25) <> sha256(k || sha256(k || substr(token, 1, 24)))
     or ('x' || encode(substr(token, 17, 8), 'hex'))::bit(64)::bigint < extract(epoch from statement_timestamp()) then
    return null;
  end if;
  return encode(substr(token, 1, 16), 'hex')::uuid;
end $$;

create function label_kept() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  raise insufficient_privilege using message = 'a trust label never falls';
end $$;
create trigger sessions_label_kept before update of label on sessions
  for each row when (new.label < old.label and current_user = 'supaclaw_member') execute function label_kept();
create trigger schedules_label_kept before update of label on schedules
  for each row when (new.label < old.label and current_user = 'supaclaw_member') execute function label_kept();

-- Looking one up is what the policies below do.
grant select (id) on tasks to supaclaw_member;

-- A member sees their own rows, and writes only rows that refer, by each foreign key, to rows they see, and that are not
-- trusted as the owner's: no change of one that is would be possible, so those there are count as known. A key into the
-- same table stays empty: a policy that asks its own table never ends.
do $$
declare
  t record; f record; checks text; r text;
begin
  for t in select c.oid, c.relname, case c.relname when 'principals' then 'id' else 'principal_id' end as whose,
                  has_any_column_privilege('supaclaw_member', c.oid, 'insert, update') as written
           from pg_policy p join pg_class c on c.oid = p.polrelid
           where c.relnamespace = 'supaclaw'::regnamespace and p.polname = 'own' loop
    checks := format('%I = (select supaclaw.member())', t.whose);
    execute format('alter policy own on supaclaw.%I using (%s)', t.relname, checks);
    continue when not t.written;
    for f in select a.attname as column, k.confrelid = t.oid as itself, r.relname as other, i.attname as key
             from pg_constraint k join pg_class r on r.oid = k.confrelid
             join pg_attribute a on a.attrelid = t.oid and a.attnum = k.conkey[1]
             join pg_attribute i on i.attrelid = r.oid and i.attnum = k.confkey[1]
             where k.conrelid = t.oid and k.contype = 'f' and r.relname <> 'principals' loop
      checks := checks || case when f.itself then format(' and %I is null', f.column) else
        format(' and (%2$I.%1$I is null or exists (select from supaclaw.%3$I theirs where theirs.%4$I = %2$I.%1$I))',
          f.column, t.relname, f.other, f.key) end;
    end loop;
    if exists (select from pg_attribute where attrelid = t.oid and attname = 'label') then
      checks := checks || ' and label >= 1';            -- 0 is the owner's
      if has_any_column_privilege('supaclaw_member', t.oid, 'update') then
        execute format('update supaclaw.%I theirs set label = 1 from supaclaw.principals p
                        where p.id = theirs.principal_id and p.role <> ''owner'' and theirs.label < 1', t.relname);
      end if;
    end if;
    if t.relname = 'messages' then
      checks := checks || ' and kind in (''assistant'', ''notice'')';
    end if;
    execute format('alter policy own on supaclaw.%I with check (%s)', t.relname, checks);
  end loop;
  revoke all on function member(), label_kept() from public;
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on all tables in schema supaclaw from %I', r);
      execute format('revoke all on function supaclaw.member(), supaclaw.label_kept() from %I', r);
    end if;
  end loop;
end $$;
grant execute on function member() to supaclaw_member;

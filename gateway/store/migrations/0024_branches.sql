-- Branches: a conversation that goes on from a place within another one, whose past is read where it is.

alter table sessions
  add parent_id uuid,                                   -- whose past it reads, always the same person's,
  add parent_seq int,                                   -- up to this place; its own places come after it
  add check ((parent_id is null) = (parent_seq is null)) not valid;
create unique index sessions_of_person on sessions (id, principal_id);
alter table sessions add foreign key (parent_id, principal_id) references sessions (id, principal_id) not valid;
create index sessions_branches on sessions (parent_id) where parent_id is not null;
alter table messages add model text;                    -- that is asked first for its answer; null: the configured one

-- A session and those whose past it reads, each until a place and as it was at a time. No place is in two of them, so
-- the entries of all are one transcript, in the order of seq. A summary counts if it was there when the branch began
-- and stands for nothing behind that place. No deeper branch than 32 is made.
create function past(p_session uuid) returns table (id uuid, until int, at timestamptz, depth int)
language sql stable rows 2 as $$
  with recursive back as (
    select s.id, s.parent_id, s.parent_seq, s.started_at, 2147483647 as until, 'infinity'::timestamptz as at, 0 as depth
    from supaclaw.sessions s where s.id = p_session
    union all
    select s.id, s.parent_id, s.parent_seq, s.started_at, b.parent_seq, b.started_at, b.depth + 1
    from back b join supaclaw.sessions s on s.id = b.parent_id where b.depth < 32
  ) select id, until, at, depth from back
$$;

do $$
declare r text;
begin
  revoke all on function past(uuid) from public;
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on function supaclaw.past(uuid) from %I', r);
    end if;
  end loop;
end $$;

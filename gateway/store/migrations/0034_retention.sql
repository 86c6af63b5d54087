-- What is over can be cleared away: rows that stay keep a task's id, and what its model calls came to is kept as sums.
alter table messages drop constraint messages_task_id_fkey;
alter table schedules drop constraint schedules_task_id_fkey;
alter table schedule_runs drop constraint schedule_runs_task_id_fkey;
alter table reviews drop constraint reviews_task_id_fkey;

create table usage (                                    -- of tasks that were cleared away
  day date not null,                                    -- UTC
  principal_id uuid not null references principals,
  session_id uuid,                                      -- null: of no conversation
  kind text not null,                                   -- of the task
  model text not null,
  calls int not null,
  tokens_in bigint not null,
  tokens_out bigint not null,
  tokens_cached bigint not null,
  cost_usd double precision not null,
  unique nulls not distinct (day, principal_id, session_id, kind, model)
);
create index usage_by_principal on usage (principal_id);
create table table_sizes (                              -- what each table took on disk, once a day
  day date not null,
  name text not null,
  bytes bigint not null,
  primary key (day, name)
);
alter table usage enable row level security;
alter table table_sizes enable row level security;
create policy own on usage to supaclaw_member using (principal_id = (select member()));
do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on usage, table_sizes from %I', r);
    end if;
  end loop;
end $$;

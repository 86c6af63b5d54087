-- The plan of a run, so that it outlives a kill. `todo/todo.md` is rendered from these rows; a run that is over has none.
create table plans (
  task_id uuid primary key references tasks on delete cascade,
  principal_id uuid not null references principals,
  title text not null default '',
  steps jsonb not null default '[]',                    -- [{"text", "done"}], in order
  trivial text,                                         -- why the run needs no plan; it has no steps then
  label smallint not null,                              -- as the run was labelled when it wrote
  ordinal int not null,                                 -- of the call that wrote it last
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index plans_by_principal on plans (principal_id);
alter table plans enable row level security;
create policy own on plans to supaclaw_member using (principal_id = (select member()))
  with check (principal_id = (select member()) and label >= 1
              and exists (select from tasks theirs where plans.task_id = theirs.id));
grant select, insert, update on plans to supaclaw_member;
grant select (id, seq, status) on tasks to supaclaw_member;
do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on plans from %I', r);
    end if;
  end loop;
end $$;

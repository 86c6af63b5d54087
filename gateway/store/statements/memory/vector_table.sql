drop table if exists memory_vectors;
delete from memory_models;
create table memory_vectors (
  memory_id bigint not null references memories on delete cascade,
  principal_id uuid not null references principals,
  model smallint not null references memory_models,
  embedding halfvec not null,
  primary key (memory_id, model)
);
create index memory_vectors_by_owner on memory_vectors (model, principal_id, memory_id);
comment on table memory_vectors is 'derived: left out of backups';
alter table memory_vectors enable row level security;
create policy own on memory_vectors to supaclaw_member using (principal_id = (select member()));
grant select on memory_vectors to supaclaw_member;

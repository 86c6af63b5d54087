-- Programs that may write what others caused, by the process that watches over each: while there is one, what has no label
-- is untrusted. Several processes may work on one folder, and the end of one's program ends no other's doubt.
create table running_commands (
  principal_id uuid not null references principals,
  instance_id uuid not null,
  primary key (principal_id, instance_id)
);
alter table running_commands enable row level security;
create policy own on running_commands to supaclaw_member using (principal_id = (select member()));
grant select on running_commands to supaclaw_member;

-- Those of before have ended by now; what they wrote is listed at the next start.
insert into contents (principal_id, sha256, label, source)
  select principal_id, 'before', label, source from contents where sha256 = 'command' on conflict do nothing;
delete from contents where sha256 = 'command';

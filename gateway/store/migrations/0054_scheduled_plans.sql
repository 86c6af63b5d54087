-- The plan of every run of a schedule, as its person confirmed it. Whatever else of the schedule changes, by whichever
-- program, voids it. The function that is revoked below is new.
-- compatible_from: 51
alter table schedules add column plan jsonb;
create function schedule_plan_voided() returns trigger language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
  new.plan := null;
  return new;
end $$;
create trigger schedules_plan_voided before update on schedules
  for each row when (
    (old.principal_id, old.name, old.prompt, old.run_at, old.cron, old.zone, old.include_session_history, old.label)
    is distinct from
    (new.principal_id, new.name, new.prompt, new.run_at, new.cron, new.zone, new.include_session_history, new.label))
  execute function schedule_plan_voided();
revoke all on function schedule_plan_voided() from public;
do $$
declare r text;
begin
  foreach r in array array['anon', 'authenticated'] loop
    if exists (select from pg_roles where rolname = r) then
      execute format('revoke all on function supaclaw.schedule_plan_voided() from %I', r);
    end if;
  end loop;
end $$;

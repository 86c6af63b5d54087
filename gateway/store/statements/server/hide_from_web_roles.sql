do $$
declare r text;
begin
  for r in select rolname from pg_roles
    where rolname in ('anon', 'authenticated') and to_regnamespace('supaclaw') is not null
  loop
    execute format('revoke all on schema supaclaw from %I', r);
    execute format('revoke all on all tables in schema supaclaw from %I', r);
    execute format('revoke all on all sequences in schema supaclaw from %I', r);
    execute format('revoke all on all functions in schema supaclaw from %I', r);
  end loop;
end $$

with clients as (
  select datid, usesysid from pg_stat_activity
  where datid is not null and pid <> pg_backend_pid()
    and coalesce(backend_type, 'client backend') = 'client backend'  -- null: not ours to see
)
select least(
  current_setting('max_connections')::int
    - coalesce(current_setting('superuser_reserved_connections', true)::int, 0)
    - coalesce(current_setting('reserved_connections', true)::int, 0) - (select count(*)::int from clients),
  (select nullif(datconnlimit, -1) - (select count(*)::int from clients where datid = oid)
   from pg_database where datname = current_database()),
  (select nullif(rolconnlimit, -1) - (select count(*)::int from clients where usesysid = oid)
   from pg_roles where rolname = current_user))

select split_part(current_setting('server_version'), ' ', 1) as version,
       pg_is_in_recovery() or current_setting('default_transaction_read_only') = 'on' as read_only,
       to_regclass('supaclaw.migrations') is not null as has_ledger,
       (select string_agg(relname, ', ' order by relname) from pg_class
        where relnamespace = to_regnamespace('supaclaw') and relkind = 'r'
          and not (has_table_privilege(oid, 'select') and has_table_privilege(oid, 'insert')
                   and has_table_privilege(oid, 'update') and has_table_privilege(oid, 'delete'))) as denied,
       case when to_regrole('supabase_admin') is null then 0 else pg_database_size(current_database()) end as supabase,
       clock_timestamp() as now

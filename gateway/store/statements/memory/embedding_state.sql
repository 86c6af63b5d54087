select (select extversion from pg_extension where extname = 'vector') as version,
       (select name from memory_models where wanted) as name,
       (select count(*) from memory_unembedded) as left,
       (select coalesce(sum(n), 0)::bigint from memory_stats) as total

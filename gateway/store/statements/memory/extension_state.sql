select (select extversion from pg_extension where extname = 'vector') as version,
       exists (select from pg_available_extensions where name = 'vector') as available,
       exists (select from pg_attribute where attrelid = to_regclass('supaclaw.memory_vectors')
               and attname = 'embedding' and not attisdropped) as ready

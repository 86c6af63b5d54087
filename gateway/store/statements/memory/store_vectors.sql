with unchanged as materialized (
  select m.id, m.principal_id, g.embedding
  from unnest($2::bigint[], $3::timestamptz[], $4::halfvec[]) as g (id, updated_at, embedding)
  join memories m on m.id = g.id and m.updated_at = g.updated_at for share of m
), done as (
  delete from memory_unembedded where memory_id in (select id from unchanged)
)
insert into memory_vectors (memory_id, principal_id, model, embedding)
select id, principal_id, $1, embedding from unchanged
on conflict (memory_id, model) do update set embedding = excluded.embedding returning memory_id

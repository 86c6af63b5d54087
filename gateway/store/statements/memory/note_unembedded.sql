insert into memory_unembedded (memory_id, principal_id)
select id, principal_id from memories m
where not exists (select from memory_vectors v where v.memory_id = m.id and v.model = $1)
on conflict do nothing

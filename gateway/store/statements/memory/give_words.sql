update memories set lexemes = array_to_tsvector($2::text[]), content_hash = $3,
  superseded_by = coalesce(superseded_by, same.id),
  superseded_at = coalesce(superseded_at, case when same.id is not null then now() end)
from (select max(id) as id from memories where principal_id = $4 and agent = $5 and content_hash = $3
        and superseded_at is null and forgotten_at is null) same
where memories.id = $1

with recursive chain as (
  select id, superseded_by from memories where principal_id = $1 and id = $2
  union
  select m.id, m.superseded_by from memories m join chain c on m.superseded_by = c.id or m.id = c.superseded_by
  where m.principal_id = $1
) select r.id, r.text, r.message_id from chain join remembered r using (id) order by id

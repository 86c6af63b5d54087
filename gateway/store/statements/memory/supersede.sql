update memories o set superseded_by = n.id, superseded_at = coalesce(o.superseded_at, now()), updated_at = now()
from memories n
where o.principal_id = $1 and n.principal_id = $1 and o.id = $2 and n.id = $3 and o.id <> n.id
  and o.kind = 'memory' and n.kind = 'memory' and greatest(n.label, $4) <= o.label and n.agent = o.agent
  and coalesce(n.superseded_at, n.forgotten_at, o.forgotten_at) is null and o.superseded_by is null
  and ($5::timestamptz is null or greatest(n.updated_at, o.updated_at) <= $5)
returning true

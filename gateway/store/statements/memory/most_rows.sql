select coalesce(max(rows) filter (where state in ('approved', 'done')), 0) as allowed, coalesce(max(rows), 0) as asked
from reviews cross join lateral (select (arguments ->> 'rows')::int as rows) each
where tool = $1 and arguments @> $2

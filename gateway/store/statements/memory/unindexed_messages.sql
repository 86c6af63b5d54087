with behind as materialized (
  select s.id, s.agent, s.unattended, coalesce(p.seq, 0) as seq, coalesce(p.place, 0) as place
  from sessions s left join memory_progress p on p.session_id = s.id
  where s.principal_id = $1 and s.next_seq - 1 > coalesce(p.seq, 0)
    and s.deleted_at is null and s.id not in
      (select session_id from addresses where channel = 'web' and starts_with(thread, 'temporary-'))
    and (not $3 or s.spoken_at > now() - interval '1 hour')
  order by s.spoken_at limit $2
)
select m.id, m.session_id, m.seq, m.kind, m.label, m.origin, m.sent_at, b.agent, b.place,
       case when m.withdrawn is null and (m.kind = 'user' or (m.kind = 'assistant' and m.final))
         then concat_ws(' ', m.sender, m.text) else '' end as text, b.unattended
from behind b cross join lateral (
  select * from messages where session_id = b.id and seq > b.seq order by seq limit $2) m
order by m.session_id, m.seq limit $2

select s.id as message_id, s.session_id, s.kind, s.sender, s.sent_at, s.label,
       case when t.forgotten_at is not null then $5 when s.withdrawn = 'edited' then $3
            when s.withdrawn = 'deleted' then $4 else s.text end as text
from messages s left join memories t on t.message_id = s.id
where s.id in (
  select message_id from memory_sources where memory_id = $2 and principal_id = $1
  union select message_id from memories where id = $2 and principal_id = $1 and message_id is not null
  union select b.id from memories m join messages b on b.session_id = m.session_id
          and b.seq between m.first_seq and m.last_seq and b.kind in ('user', 'assistant')
        where m.id = $2 and m.principal_id = $1)
order by s.id

select m.id, left(coalesce(m.text, concat_ws(': ', nullif(s.sender, ''), s.text)), $2) as text, m.updated_at
from memory_unembedded u join memories m on m.id = u.memory_id left join messages s on s.id = m.message_id
order by u.memory_id desc limit $1

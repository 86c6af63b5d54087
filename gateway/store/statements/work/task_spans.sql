select s.* from task_steps s
where s.task_id = $1 and s.id > $2
  and ($3::timestamptz is null or s.created_at >= $3) and ($4::timestamptz is null or s.created_at <= $4)
  and not (s.kind = 'intent' and exists (
    select from messages c join messages r on r.task_id = c.task_id and r.ordinal = c.ordinal
    join task_steps t on t.task_id = s.task_id and t.kind = 'tool' and t.message_id = r.id where c.id = s.message_id))
  and (strpos(lower(s.name), lower($5)) > 0 or exists (
    select from messages f join messages m on m.id = f.id or (m.task_id = f.task_id and m.ordinal = f.ordinal)
    where f.id = s.message_id and strpos(lower(m.text), lower($5)) > 0))
order by s.id limit $6

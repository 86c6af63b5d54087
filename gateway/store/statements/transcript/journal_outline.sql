with here as (
  select id, kind, text, withdrawn from (
    select * from messages
    where journal_id = (select id from journals where session_id = $1 and closed_at is null)
    union all select * from messages
    where session_id = $1 and journal_id is null and origin not like 'import:%') m
  where kind = 'user' or (kind = 'assistant' and final))
select coalesce((select left(text, 400) from here where kind = 'user' and withdrawn is null
                 order by id limit 1), '') as asked,
       coalesce((select left(text, 400) from here where kind = 'assistant' order by id desc limit 1), '')
         as answered,
       (select count(*)::int from here) as messages

with old as (
  update messages set withdrawn = $3, closed_at = case when seq is null then now() else closed_at end
  where address_id = $1 and platform_id = $2 and kind = 'user' and origin <> 'deleted'
    and withdrawn is null and ($3 = 'deleted' or seq is not null and $4 <> case origin when $5
      then substr(text, strpos(text, chr(10)) + 1) else text end)
  returning *
), forgotten as (
  delete from memories where kind = 'turn' and message_id in (select id from old)
)
select * from old order by id

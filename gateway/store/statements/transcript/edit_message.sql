update messages
set text = case origin when $6 then split_part(text, chr(10), 1) || chr(10) else '' end || $3,
  tokens = $4, label = greatest(label, $5)
where address_id = $1 and platform_id = $2 and kind = 'user' and withdrawn is null
  and case when seq is null then closed_at is null else origin = $6 and closed_at is not null
        and not exists (select from messages later where later.session_id = messages.session_id
                          and later.seq > messages.seq and later.kind <> 'user')
        and not exists (select from tasks reading where reading.session_id = messages.session_id
                          and reading.kind = 'chat' and reading.status = 'running') end
returning id

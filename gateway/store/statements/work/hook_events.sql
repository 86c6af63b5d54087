select kind || '.' || mark as id, each.* from (
  select 'answer.sent' as kind, m.id::text as mark, m.created_at as at,
         jsonb_build_object('message', m.id, 'session', m.session_id) as data, m.text
  from messages m join sessions s on s.id = m.session_id
  where m.id > $2 and m.principal_id = $1 and m.kind = 'assistant' and m.final and not s.unattended
    and s.id not in (select session_id from addresses where channel = 'web' and starts_with(thread, 'temporary-'))
    and m.origin not like 'import:%' and m.id < coalesce((
      select min(message_id) from outbox where principal_id = $1 and message_id > $2 and state in ('pending', 'sending')
        and created_at > now() - interval '1 hour'), m.id + 1)
  union all select 'review.asked', id::text, created_at, jsonb_build_object('review', id, 'kind', kind), preview
  from reviews where id > $3 and asked_id = $1
  union all select 'task.ended', to_char(updated_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), updated_at,
         jsonb_build_object('task', id, 'status', status), coalesce(output ->> 'result', error, '')
  from tasks where updated_at > $4 and principal_id = $1 and parent_id is null and kind = 'agent'
    and status in ('completed', 'failed', 'cancelled')) each
where at < now() - interval '2 seconds' order by kind, length(mark), mark limit $5

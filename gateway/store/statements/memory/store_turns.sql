insert into memories (principal_id, kind, label, origin, agent, session_id, message_id, place, lexemes,
  event_at, created_at, forgotten_at)
values ($1, 'turn', $2, $3, $4, $5, $6, $7, array_to_tsvector($8::text[]), $9, $9, $10)
on conflict do nothing

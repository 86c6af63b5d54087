insert into memories (principal_id, kind, text, lexemes, category, content_hash, importance, tags, pinned, language, label,
  origin, agent, session_id, event_at, created_at)
values ($1, $2, $3, array_to_tsvector($4::text[]), $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, coalesce($16, now()))
on conflict do nothing returning id

with said as (
  select * from unnest($4::text[], $5::text[], $6::text[], $7::timestamptz[], $8::smallint[], $9::int[])
    with ordinality as s (key, kind, text, at, label, tokens, place)
), place as (
  update sessions set next_seq = next_seq + (select count(*) from said)::int,
    label = greatest(label, (select max(label) from said)),
    started_at = least(started_at, (select min(at) from said)),
    ended_at = greatest(ended_at, (select max(at) from said)),
    spoken_at = greatest(spoken_at, (select max(at) from said))
  where id = $1 returning next_seq - (select count(*) from said)::int as first
)
insert into messages (session_id, principal_id, seq, kind, text, label, origin, platform_id, sent_at,
                      created_at, closed_at, tokens)
select $1, $2, place.first + s.place - 1, s.kind, s.text, s.label, $3, s.key, s.at, s.at,
       case when s.kind = 'user' then now() end, s.tokens
from said s, place order by s.place

select s.id, a.channel, a.chat, s.next_seq - 1 - coalesce(s.parent_seq, 0) + waiting.messages as messages,
       s.started_at,
       greatest(taken.at, waiting.at) as last_at, s.ended_at
from (select * from sessions order by spoken_at desc limit $1) s
left join lateral (
  select created_at as at from messages
  where session_id = s.id and seq is not null order by seq desc limit 1) taken on true
cross join lateral (
  select count(*)::int as messages, max(created_at) as at, min(address_id) as address from messages
  where session_id = s.id and seq is null) waiting
left join lateral (
  select channel, chat from (
    (select channel, chat from addresses where session_id = s.id order by id limit 1)
    union all
    (select channel, chat from addresses where id = coalesce((
       select address_id from messages
       where session_id = s.id and seq is not null and address_id is not null order by seq limit 1),
       waiting.address))) x
  limit 1) a on true
order by coalesce(greatest(taken.at, waiting.at), s.started_at) desc

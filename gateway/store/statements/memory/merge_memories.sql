with pair as (
  update memories k set seen_count = k.seen_count + s.seen_count, pinned = k.pinned or s.pinned,
    importance = greatest(k.importance, s.importance),
    tags = array(select distinct unnest(k.tags || s.tags) order by 1)
  from memories s where k.id = $1 and s.id = $2 and k.label = s.label returning s.id)
insert into memory_sources (memory_id, message_id, principal_id)
select $1, message_id, principal_id from memory_sources join pair on memory_id = pair.id
on conflict do nothing

select i.id, i.name, i.kind, i.started_at,
       case when l.expires_at > now() then 'running' when i.stopped_at is null then 'dead'
            else 'stopped' end as state,
       case when l.expires_at > now() then now()
            else coalesce(i.stopped_at, l.expires_at, i.started_at) end as seen_at,
       array(select substr(name, 9) from leases
             where holder = i.id and name like 'channel %' and expires_at > now() order by 1) as channels,
       array(select thing from homes where instance_id = i.id order by 1) as homes,
       (select count(*)::int from tasks where status = 'running' and worker = i.id) as running
from instances i left join leases l on l.name = concat('instance ', i.id)
order by (l.expires_at > now()) is true desc, i.started_at

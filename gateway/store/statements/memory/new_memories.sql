select r.* from remembered r join memory_stats s using (principal_id)
where r.principal_id = $1 and r.kind = $2 and r.id > s.consolidated_to and r.label <= $3 and r.agent = $4
  and r.superseded_at is null and r.forgotten_at is null and (r.kind = 'memory' or r.created_at > now() - $5::interval)
order by r.id limit $6

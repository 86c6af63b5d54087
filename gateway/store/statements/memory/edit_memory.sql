update memories set category = case when kind = 'memory' then coalesce($3, category) end,
  importance = coalesce($4, importance), tags = coalesce($5, tags), pinned = coalesce($6, pinned), updated_at = now()
where principal_id = $1 and id = $2 and kind in ('memory', 'summary')

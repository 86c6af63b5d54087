-- Two that kill died in each other's pause and so spoke for each other. As before (0013), but a death that another one
-- explains speaks for nobody. Deaths at random that meet many in turn would then find an innocent more often: therefore
-- the second pause is three times as long.
create or replace function died(p_worker uuid, p_ids uuid[], p_lease interval, p_error text) returns int
language plpgsql set search_path = supaclaw as $$
declare v_ids uuid[] := coalesce(p_ids, '{}'); v_met boolean; v_alone boolean;
begin
  select coalesce(bool_or(crashes > 0), false),
         count(*) filter (where crashes > 0) = 1 and (max(crashes) > 1 or count(*) = 1)
  into v_met, v_alone from tasks where status = 'running' and worker = p_worker;
  update tasks set status = 'pending', worker = null, lease_until = null, run_at = now(), error = p_error,
    attempts = greatest(0, attempts - 1), crashes = crashes + 1, alone = alone + (v_alone and crashes > 0)::int,
    held_until = case when v_alone and crashes > 0 and alone < 2
      then now() + power(3, greatest(0, alone)) * ('10 s' + 4 * greatest('0 s', lease_until - p_lease - updated_at)) end,
    updated_at = now()
  where id = any(v_ids);
  update tasks set
    crashes = case when v_met then crashes else 1 end,
    alone = case when held_until > now() and not v_alone
                 then greatest(-1, case when v_met then alone else least(0, alone) end - 1) else alone end,
    held_until = case when v_met and held_until > now() then now() + (held_until - updated_at) end,
    updated_at = now()
  where status = 'pending' and crashes > 0 and not id = any(v_ids);
  return cardinality(v_ids);
end $$;

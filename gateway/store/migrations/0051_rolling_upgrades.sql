-- Programs of two versions work on one schema. The ledger says which is the oldest that may.
-- compatible_from: 51

-- The schema that its program knows; 0 for a program that doesn't say.
alter table instances add column schema int not null default 0;

-- Claims tasks for the free slots of each lane, and opens at most 25 chats of them: each is a row with the run in its
-- state, with that of open_chat and its rows behind it if it is opened. None for a program too old for the schema. The
-- lane with the worst suspect comes first: the others then know of it. A chat is left to its run if its session is
-- locked, which is never waited for here, if it had an attempt before, or if opening it fails, whose code is in its
-- state, or answers it.
create or replace function claim_open(p_worker uuid, p_free jsonb, p_lease interval, p_kinds text[], p_schema int,
  p_patience interval, p_files int)
returns table (state jsonb, entry messages, fields text[]) language plpgsql set search_path = supaclaw as $$
declare t tasks; v_claimed tasks[]; v_run jsonb; v_open boolean; v_left int := 25;
begin
  if (select max(compatible_from) from migrations) > p_schema then
    return;
  end if;
  v_claimed := array(
    select c from (
      select key, value::int as slots from jsonb_each(p_free) order by (
        select max(crashes) from tasks where status = 'pending' and crashes > 1 and lane = key
          and run_at <= now() and (held_until is null or held_until <= now())) desc nulls last) free,
      claim(p_worker, key, slots, p_lease, p_kinds) c);
  foreach t in array v_claimed loop
    select jsonb_build_object('run', to_jsonb(r)) into v_run from (
      select t.id, t.token, t.kind, t.lane, t.principal_id, t.session_id, t.agent, t.attempts, t.max_attempts, t.alone,
             extract(epoch from now() - t.silent_since) as silent_for) r;
    v_open := false;
    if t.kind = 'chat' and t.attempts = 1 and t.alone = 0 and v_left > 0 then
      begin
        perform from sessions where id = t.session_id for no key update skip locked;
        if found then
          return query select o.state || v_run, o.entry, o.fields
                       from open_chat(t.session_id, t.id, t.token, false, p_patience, p_files) o;
          v_open := found;
          if not v_open then
            raise exception using errcode = 'SW002';  -- it is over, or waits, which its run finds out
          end if;
        end if;
      exception
        when sqlstate 'SW002' then null;  -- the function had returned no row
        when others then v_run := v_run || jsonb_build_object('not_opened', sqlstate);
      end;
      v_left := v_left - 1;
    end if;
    if not v_open then
      return query select v_run, null::messages, null::text[];
    end if;
  end loop;
end $$;

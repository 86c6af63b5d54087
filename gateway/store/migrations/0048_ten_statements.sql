-- A plain turn takes ten statements, and each step of a turn with tools one. Rarer cases go the longer way.

-- Claims tasks for the free slots of each lane, and opens at most eight chats of them: each is a row with the run in its
-- state, with that of open_chat and its rows behind it if it is opened. None for a process older than the schema. The
-- lane with the worst suspect comes first: the others then know of it. A chat is left to its run if its session is
-- locked, which is never waited for here, if it had an attempt before, or if opening it fails or answers it.
create function claim_open(p_worker uuid, p_free jsonb, p_lease interval, p_kinds text[], p_schema int,
  p_patience interval, p_files int)
returns table (state jsonb, entry messages, fields text[]) language plpgsql set search_path = supaclaw as $$
declare t tasks; v_claimed tasks[]; v_run jsonb; v_open boolean; v_left int := 8;
begin
  if (select max(number) from migrations) > p_schema then
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
            raise exception 'it is over, or waits, which its run finds out';
          end if;
        end if;
      exception when others then
        null;  -- the function had returned no row
      end;
      v_left := v_left - 1;
    end if;
    if not v_open then
      return query select v_run, null::messages, null::text[];
    end if;
  end loop;
end $$;

-- Appends calls to the transcript, in order; the caller holds the session. Those without a task were made before the
-- conversation reached us.
create function intend(p_session uuid, p_principal uuid, p_task uuid, p_label smallint, p_calls jsonb)
returns setof bigint language sql set search_path = supaclaw as $$
  with place as (
    update sessions set next_seq = next_seq + jsonb_array_length(p_calls) where id = p_session
    returning next_seq - jsonb_array_length(p_calls) as first
  )
  insert into messages (session_id, principal_id, task_id, seq, kind, ordinal, call_id, tool, text, label, origin,
                        tokens, journal_id)
  select p_session, p_principal, p_task, place.first + i.place - 1, 'tool_intent', (i.call ->> 'ordinal')::int,
         i.call ->> 'id', i.call ->> 'tool', i.call ->> 'arguments', p_label, i.call ->> 'origin',
         (i.call ->> 'tokens')::int, (select id from journals where session_id = p_session and closed_at is null)
  from place, jsonb_array_elements(p_calls) with ordinality i (call, place)
  order by i.place returning id
$$;

-- Stores the result of a call once, and with p_ms the step; the caller holds the session.
create function conclude(p_session uuid, p_principal uuid, p_task uuid, p_label smallint, p_call jsonb, p_text text,
  p_tokens int, p_ms int, p_ok boolean)
returns void language sql set search_path = supaclaw as $$
  with place as (
    update sessions set next_seq = next_seq + 1 where id = p_session returning next_seq - 1 as seq
  ), said as (
    insert into messages (session_id, principal_id, task_id, seq, kind, ordinal, call_id, tool, text, label, origin,
                          tokens, journal_id)
    select p_session, p_principal, p_task, place.seq, 'tool_result', (p_call ->> 'ordinal')::int, p_call ->> 'id',
           p_call ->> 'tool', p_text, p_label, p_call ->> 'origin', p_tokens,
           (select id from journals where session_id = p_session and closed_at is null)
    from place
    on conflict (task_id, ordinal, kind) where ordinal is not null do nothing returning id
  )
  insert into task_steps (task_id, principal_id, kind, name, latency_ms, ok, message_id)
  select p_task, p_principal, 'tool', p_call ->> 'tool', p_ms, p_ok, (select id from said) where p_ms is not null
$$;

-- Commits the step of a run whose model asked for calls: what it said before them, the calls, and its costs;
-- with p_each also each call.
create function step_called(p_session uuid, p_task uuid, p_token bigint, p_lease interval, p_principal uuid,
  p_label smallint, p_text text, p_tokens int, p_calls jsonb, p_reply jsonb, p_each boolean)
returns void language plpgsql set search_path = supaclaw as $$
declare v_said bigint; v_calls bigint[];
begin
  perform from sessions where id = p_session for no key update;
  perform progress(p_task, p_token, p_lease);
  if p_text <> '' then
    v_said := (say(p_session, p_principal, null, 'assistant', p_text, p_label, 'agent', false, p_task, null,
                   p_tokens, '{}', false)).id;
  end if;
  v_calls := array(select intend(p_session, p_principal, p_task, p_label, p_calls));
  perform model_called(p_task, p_principal, coalesce(v_said, v_calls[1]), v_calls[1], p_reply);
  if p_each then
    insert into task_steps (task_id, principal_id, kind, name, message_id)
    select p_task, p_principal, 'intent', call ->> 'tool', v_calls[place]
    from jsonb_array_elements(p_calls) with ordinality i (call, place) order by place;
  end if;
end $$;

-- Commits the step of a run whose call has a result; its session's label rises to that of the result.
create function step_concluded(p_session uuid, p_task uuid, p_token bigint, p_lease interval, p_principal uuid,
  p_label smallint, p_call jsonb, p_text text, p_tokens int, p_ms int, p_ok boolean)
returns void language plpgsql set search_path = supaclaw as $$
begin
  perform from sessions where id = p_session for no key update;
  perform progress(p_task, p_token, p_lease);
  update sessions set label = p_label where id = p_session and label < p_label;
  perform conclude(p_session, p_principal, p_task, p_label, p_call, p_text, p_tokens, p_ms, p_ok);
end $$;

-- The rows with the greatest share of these words, those with less than p_least left out; none if that takes longer than
-- p_within. Looked at are at most 1,000, of the rarest words.
drop function memory_recalled(uuid, text[], smallint, int, double precision);
create function memory_recalled(p_principal uuid, p_words text[], p_at_most smallint, p_k int,
  p_least double precision, p_within interval)
returns table (id bigint, share double precision) language plpgsql stable set search_path = supaclaw, pg_temp as $$
#variable_conflict use_column
declare v_until timestamptz := clock_timestamp() + p_within; v_id bigint; v_share double precision;
  v_ids bigint[] := '{}'; v_shares double precision[] := '{}';
begin
  for v_id, v_share in
    with words as materialized (
      select word, idf / sum(idf) over () as share, sum(df) over (order by df, word) as running
      from memory_words(p_principal, p_words, 300)
    )
    select hit.id, words.share from words cross join lateral (
      select m.id from memories m
      where m.lexemes @@ quote_literal(word)::tsquery and m.principal_id = p_principal and m.label <= p_at_most
        and m.superseded_at is null and m.forgotten_at is null and (m.valid_to is null or m.valid_to > now())) hit
    where running <= 1000
  loop
    if clock_timestamp() > v_until then
      return;
    end if;
    v_ids := v_ids || v_id;
    v_shares := v_shares || v_share;
  end loop;
  return query select h.id, sum(h.share) from unnest(v_ids, v_shares) h (id, share)
    group by h.id having sum(h.share) >= p_least order by 2 desc, 1 desc limit p_k;
end $$;

revoke all on function claim_open, intend, conclude, step_called, step_concluded, memory_recalled from public;

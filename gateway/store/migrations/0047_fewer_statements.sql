-- A turn takes a few statements instead of thirty-five: each commit of it is one function, which the process calls
-- without a transaction around it. Rarer cases go the longer way.

-- A chat's task is left to the instance that stored the message, which knows of it: no notification is needed.
drop trigger tasks_told_insert on tasks;
create trigger tasks_told_insert after insert on tasks
  for each row when (new.status = 'pending' and new.kind <> 'chat') execute function told();

-- What a turn reads of a session, in order: the last summary, then what that does not cover; nothing unread.
create function transcript(p_session uuid) returns setof messages language sql stable as $$
  with last as (
    select s.id, s.covers from supaclaw.past(p_session) p cross join lateral (
      select id, covers from supaclaw.messages
      where session_id = p.id and kind = 'summary' and covers <= p.until and created_at <= p.at
      order by seq desc limit 1) s
    order by p.depth limit 1
  )
  select m.* from (
    (select * from supaclaw.messages where id = (select id from last))
    union all
    (select m.* from supaclaw.past(p_session) p
     join supaclaw.messages m on m.session_id = p.id and m.seq <= p.until
     where m.kind <> 'summary' and m.seq > coalesce((select covers from last), 0))) m
  order by kind <> 'summary', seq
$$;

-- The fields that only the provider of a message understands: source, message, those of each call.
create function kept_fields(m messages) returns text[] language sql stable as $$
  select case when m.kind in ('assistant', 'tool_intent') then
    (select array[f.source, f.message] || f.calls from supaclaw.provider_fields f where f.message_id = m.id) end
$$;

-- The files of these messages, and with an age those of the whole conversation: each once, of thousands the newest.
create function turn_files(p_session uuid, p_messages bigint[], p_limit int)
returns table (attachment_id uuid, age bigint, total bigint) language sql stable as $$
  with newest as (
    select n.* from supaclaw.past(p_session) p cross join lateral (
      select a.id, a.file_id, a.created_at, a.place
      from supaclaw.attachments a join supaclaw.messages m on m.id = a.message_id
      where a.session_id = p.id and a.state = 'stored' and m.seq <= p.until and m.withdrawn is distinct from 'deleted'
      order by a.created_at desc, a.place desc limit p_limit * 4) n
    order by n.created_at desc, n.place desc limit p_limit * 4
  ), latest as (
    select distinct on (file_id) id, created_at, place from newest order by file_id, created_at desc, place desc
  ), listed as (
    select id, row_number() over (order by created_at desc, place desc) as age, count(*) over () as total from latest
  )
  select id, max(age), max(total) from (
    select id, age, total from listed where age <= p_limit
    union all select id, null, null from supaclaw.attachments
    where session_id in (select id from supaclaw.past(p_session)) and message_id = any(p_messages)) chosen
  group by id
$$;

-- Gives unread messages their place in the transcript; the caller holds the session. A solo message is taken alone, at
-- the start of a turn: it joins no turn that runs or that has open messages, and nothing joins its turn. One whose
-- files are on their way stays unread for p_patience, and so does what came after it.
create function take_unread(p_session uuid, p_joining boolean, p_patience interval) returns setof messages
language sql set search_path = supaclaw as $$
  with open as (
    select id, seq, solo, created_at from messages
    where session_id = p_session and kind = 'user' and answered_by is null and closed_at is null
  ), incomplete as (
    select o.id from open o
    join attachments a on a.message_id = o.id left join files f on f.id = a.file_id
    where a.state <> 'failed' and f.derived_at is null and o.created_at > now() - p_patience
  ), waiting as (
    select id, row_number() over (order by id) as place,
           bool_or(solo) over (order by id) as behind_solo,
           bool_or(id in (select id from incomplete)) over (order by id) as behind_files
    from open where seq is null
  ), chosen as (
    select id, place from waiting
    where not behind_files and case when exists (select from open where seq is not null and solo) then false
               when p_joining or exists (select from open where seq is not null) then not behind_solo
               else not behind_solo or place = 1 end
  ), counted as (
    update sessions set next_seq = next_seq + (select count(*) from chosen)::int, spoken_at = now()
    where id = p_session and exists (select from chosen) returning next_seq
  )
  update messages m
  set seq = (select next_seq from counted) - (select count(*) from chosen)::int + chosen.place::int - 1
  from chosen where m.id = chosen.id returning m.*
$$;

-- Opens the turn of a chat: takes the unread messages, and returns first its state, then its transcript. No rows: all is
-- answered, and the task has ended, or files are on their way, and the task waits; who fetches them hastens it.
-- A suspect, which may kill its process, takes none besides those that it was answering.
create function open_chat(p_session uuid, p_task uuid, p_token bigint, p_suspect boolean, p_patience interval,
  p_files int)
returns table (state jsonb, entry messages, fields text[]) language plpgsql set search_path = supaclaw as $$
declare v_label smallint; v_task tasks; v_entries messages[]; v_asked messages[];
begin
  select label into v_label from sessions where id = p_session for no key update;
  v_task := hold(p_task, p_token);
  for v_round in 1 .. 2 loop
    if v_round = 2 or not p_suspect then
      perform take_unread(p_session, false, p_patience);
    end if;
    v_entries := array(select t from transcript(p_session) t);
    v_asked := array(select e from unnest(v_entries) e
                     where e.kind = 'user' and e.answered_by is null and e.closed_at is null);
    exit when v_asked <> '{}' or not p_suspect;
  end loop;
  if v_asked = '{}' then
    if exists (select from messages where session_id = p_session and kind = 'user' and seq is null
                 and answered_by is null and closed_at is null) then
      perform renew(p_task, p_token, (
        select greatest('0', min(created_at) + p_patience - now()) from messages
        where session_id = p_session and kind = 'user' and seq is null and answered_by is null and closed_at is null));
    else
      perform finish(p_task, p_token, 'completed');
    end if;
    return;
  end if;
  return query
    select jsonb_build_object('label', v_label, 'principal', to_jsonb(p), 'address', to_jsonb(a), 'files', (
             select coalesce(jsonb_agg(to_jsonb(f) || jsonb_build_object('age', t.age, 'total', t.total)), '[]')
             from turn_files(p_session, array(select e.id from unnest(v_entries) e), p_files) t
             join attached f using (attachment_id)
             where exists (select from attachments where session_id in (select id from past(p_session))))),
           null::messages, null::text[]
    from addresses a, (select id, role, name from principals where id = v_task.principal_id) p
    where a.id = v_asked[cardinality(v_asked)].address_id;
  return query select null::jsonb, e, kept_fields(e) from unnest(v_entries) e;
end $$;

-- Makes a run's task pending again with all attempts, because there is more to do.
create function renew(p_id uuid, p_token bigint, p_delay interval) returns void
language plpgsql set search_path = supaclaw as $$
begin
  perform suspend(p_id, p_token, 'pending', p_delay);
  update tasks set attempts = 0, crashes = 0, alone = 0, held_until = null, error = null where id = p_id;
end $$;

-- Makes sure that a live task answers the session, after a delay at the latest; the caller holds the session.
create function create_chat(p_task uuid, p_principal uuid, p_session uuid, p_instance uuid, p_delay interval)
returns void language sql set search_path = supaclaw as $$
  insert into tasks (id, master_id, kind, lane, principal_id, session_id, instance_id, run_at)
  values (p_task, p_task, 'chat', 'chat', p_principal, p_session, p_instance, now() + p_delay)
  on conflict (session_id) where kind = 'chat' and status in ('pending', 'running')
  do update set run_at = excluded.run_at where tasks.status = 'pending' and tasks.run_at > excluded.run_at
$$;

-- Appends an entry to the transcript; the caller holds the session. With p_answers it answers every message that the
-- turn took.
create function say(p_session uuid, p_principal uuid, p_address bigint, p_kind text, p_text text, p_label smallint,
  p_origin text, p_final boolean, p_task uuid, p_covers int, p_tokens int, p_remembered bigint[], p_answers boolean)
returns messages language plpgsql set search_path = supaclaw, pg_temp as $$
declare v_said messages;
begin
  with place as (
    update sessions set next_seq = next_seq + 1, spoken_at = now() where id = p_session
    returning next_seq - 1 as seq
  )
  insert into messages (session_id, principal_id, address_id, seq, kind, text, label, origin, final, task_id,
                        closed_at, covers, tokens, remembered, journal_id)
  select p_session, p_principal, p_address, place.seq, p_kind, p_text, p_label, p_origin, p_final, p_task,
         case when p_kind = 'user' and p_task is null then now() end, p_covers, p_tokens, p_remembered,
         (select id from journals where session_id = p_session and closed_at is null)
  from place returning * into v_said;
  if p_answers then
    update messages set answered_by = v_said.id
    where session_id = p_session and kind = 'user' and seq is not null and answered_by is null and closed_at is null;
  end if;
  return v_said;
end $$;

-- Records a model call, and settles what it had reserved; the caller holds the task. With the message p_message, the
-- first that it said: the thinking before it, and in p_fields_of, an answer or its first call, the provider's fields.
create function model_called(p_task uuid, p_principal uuid, p_message bigint, p_fields_of bigint, r jsonb)
returns void language plpgsql set search_path = supaclaw as $$
begin
  update tasks set reserved_token = null where id = p_task and reserved_token is not null;
  insert into task_steps (task_id, principal_id, kind, name, tokens_in, tokens_out, tokens_cached, cost_usd, latency_ms,
                          failed, message_id, tokens_thinking, thinking_usd)
  values (p_task, p_principal, 'model', r ->> 'model', (r ->> 'tokens_in')::int, (r ->> 'tokens_out')::int,
          (r ->> 'tokens_cached')::int, (r ->> 'cost_usd')::float8, (r ->> 'latency_ms')::int, r -> 'failed', p_message,
          (r ->> 'tokens_thinking')::int, (r ->> 'thinking_usd')::float8);
  insert into provider_fields (message_id, principal_id, label, source, message, calls)
  select id, principal_id, label, r #>> '{fields,0}', r #>> '{fields,1}',
         array(select jsonb_array_elements_text(r -> 'fields') offset 2)
  from messages where id = p_fields_of and jsonb_typeof(r -> 'fields') = 'array';
  insert into thoughts (message_id, principal_id, label, text, tokens, ms)
  select id, principal_id, label, r #>> '{thought,text}', (r ->> 'tokens_thinking')::int,
         (r #>> '{thought,ms}')::int
  from messages where id = p_message and jsonb_typeof(r -> 'thought') = 'object';
end $$;

-- Stores a message of the plain kind, once, and queues its turn: in a known private chat that still belongs to its
-- sender, without files, quotes or albums. No row: it is of another kind, or was seen before, and nothing is stored.
-- The holder is p_holder, else the member with p_identity.
create function accept(p_channel text, p_account text, p_chat text, p_thread text, p_holder uuid, p_identity text,
  p_platform_id text, p_sent_at timestamptz, p_text text, p_tokens int, p_label smallint, p_sender text,
  p_as_owner boolean, p_solo boolean, p_entry uuid, p_task uuid, p_instance uuid, p_delay interval)
returns table (arrival bigint, address bigint, session uuid, message bigint)
language plpgsql set search_path = supaclaw as $$
declare a addresses; v_journal bigint;
begin
  select * into a from addresses
  where (channel, account, chat, thread) = (p_channel, p_account, p_chat, p_thread) for no key update;
  if a.id is null or not a.private or a.principal_id is distinct from coalesce(p_holder, (
       select id from principals where id = a.principal_id and role <> 'owner' and p_identity = any(identities))) then
    return;
  end if;
  perform from sessions where id = a.session_id for no key update;
  select id into v_journal from journals where session_id = a.session_id and closed_at is null;
  insert into inbox (principal_id, address_id, channel, account, chat, platform_id, kind, platform_time, handled_at,
                     entry_id, journal_id, sender, as_owner)
  values (a.principal_id, a.id, a.channel, a.account, a.chat, p_platform_id, 'message', p_sent_at, now(), p_entry,
          v_journal, p_sender, p_as_owner)
  on conflict do nothing returning id into arrival;
  if arrival is null then
    return;
  end if;
  insert into messages (session_id, principal_id, address_id, kind, text, label, origin, platform_id, sent_at, solo,
                        entry_id, tokens, journal_id)
  values (a.session_id, a.principal_id, a.id, 'user', p_text, p_label, a.channel, p_platform_id, p_sent_at, p_solo,
          p_entry, p_tokens, v_journal)
  returning id into message;
  update inbox set message_id = message where id = arrival;
  perform create_chat(p_task, a.principal_id, a.session_id, p_instance, p_delay);
  update sessions set label = p_label where id = a.session_id and label < p_label;
  address := a.id;
  session := a.session_id;
  return next;
end $$;

-- Ends the run of a chat with its answer or a notice, in these parts. Returns its id; null, and nothing is stored, if
-- the session's label is not p_label any more, or if a message waits that no turn has taken.
create function answer(p_session uuid, p_task uuid, p_token bigint, p_label smallint, p_address bigint, p_kind text,
  p_text text, p_tokens int, p_origin text, p_remembered bigint[], p_reply jsonb, p_parts text[], p_reply_to text,
  p_status text, p_error text)
returns bigint language plpgsql set search_path = supaclaw as $$
declare v_label smallint; v_task tasks; v_said messages;
begin
  select label into v_label from sessions where id = p_session for no key update;
  v_task := hold(p_task, p_token);
  if v_label <> p_label or exists (select from messages where session_id = p_session and kind = 'user' and seq is null
                                     and answered_by is null and closed_at is null) then
    return null;
  end if;
  v_said := say(p_session, v_task.principal_id, p_address, p_kind, p_text, v_label, p_origin, true, p_task, null,
                p_tokens, p_remembered, true);
  if p_reply is not null then
    perform model_called(p_task, v_task.principal_id, v_said.id, v_said.id, p_reply);
  end if;
  insert into outbox (principal_id, address_id, message_id, part, text, reply_to)
  select v_task.principal_id, p_address, v_said.id, place - 1, text, case when place = 1 then p_reply_to end
  from unnest(p_parts) with ordinality as p (text, place);
  perform finish(p_task, p_token, p_status, null, p_error);
  return v_said.id;
end $$;

-- The other versions of a branch's messages, the newest; none if it is no branch.
create function other_versions(p_session uuid, p_limit int) returns setof bigint
language sql stable set search_path = supaclaw as $$
  with behind as (
    select p.id, p.until from past(p_session) p where p.depth > 0
    union all
    select s.id, s.parent_seq from sessions s join past(p_session) p on s.parent_id = p.id
    where s.id not in (select id from past(p_session)))
  select m.id from behind b cross join lateral (
    select id from messages where session_id = b.id and seq > b.until order by seq desc limit p_limit) m
  order by m.id desc limit p_limit
$$;

-- Queues a task, due after a delay; null if a live one has the same p_dedupe, if there is one of this id, or if the parent
-- is over. A child counts at its parent in the same transaction, and its priority is relative to that of the parent.
create function create_task(p_id uuid, p_principal uuid, p_kind text, p_lane text, p_input jsonb, p_dedupe text,
  p_parent uuid, p_max_attempts int, p_instance uuid, p_priority int, p_session uuid, p_agent text,
  p_budget_usd double precision, p_delay interval)
returns uuid language sql set search_path = supaclaw, pg_temp as $$
  with parent as (
    select master_id, depth, priority from tasks
    where id = p_parent and status not in ('completed', 'failed', 'cancelled') for update
  ), child as (
    insert into tasks (id, master_id, parent_id, depth, kind, lane, principal_id, input, dedupe, max_attempts,
                       instance_id, priority, session_id, agent, budget_usd, run_at)
    select p_id, coalesce((select master_id from parent), p_id), p_parent,
           coalesce((select depth + 1 from parent), 0), p_kind, p_lane, p_principal, p_input, p_dedupe, p_max_attempts,
           p_instance, p_priority + coalesce((select priority from parent), 0), p_session, p_agent, p_budget_usd,
           now() + p_delay
    where p_parent is null or exists (select from parent)
    on conflict do nothing returning id, parent_id
  ), counted as (
    update tasks set open_children = open_children + 1 where id = (select parent_id from child)
  )
  select id from child
$$;

-- The lines of a journal's file behind a message and an arrival; tool calls and results are cut. By time, but never
-- against the order within a table: a row's time is when its transaction began.
create function journal_lines(p_journal bigint, p_message bigint, p_arrival bigint, p_most int)
returns table (id bigint, arrived boolean, entry_id uuid, kind text, at timestamptz, who text, text text, length int,
  files text[])
language sql stable set search_path = supaclaw as $$
  select l.id, l.arrived, l.entry_id, l.kind, l.at, l.who, l.text, l.length, l.files from (
    select m.id, false as arrived, m.entry_id, m.kind, m.created_at as at,
           case when m.kind in ('tool_intent', 'tool_result') then coalesce(m.tool, '') else m.sender end as who,
           case when m.kind in ('tool_intent', 'tool_result') then left(m.text, p_most) else m.text end as text,
           length(m.text) as length, max(m.created_at) over (order by m.id) as placed,
           array(select concat(coalesce(nullif(a.name, ''), 'file'), ' → ' || f.path, ': ' || nullif(a.error, ''))
                 from attachments a left join files f on f.id = a.file_id
                 where a.message_id = m.id order by a.place) as files
    from messages m where m.journal_id = p_journal and m.id > p_message
    union all
    select i.id, true, i.entry_id, i.kind, i.received_at, '', i.text, length(i.text),
           max(i.received_at) over (order by i.id), '{}'
    from inbox i where i.journal_id = p_journal and i.id > p_arrival and i.kind in ('command', 'edit')) l
  order by l.placed, l.arrived, l.id
$$;

-- The newest memory in place of each row that is out of date: a replaced one, what it was learned from, or a summary of
-- its conversation that has all of its words which the new one lacks.
create function memory_replacements(p_rows bigint[]) returns table (replaces bigint, id bigint, version text)
language sql stable set search_path = supaclaw, pg_temp as $$
  with old as (
    select m.id as row, m.id from memories m where m.id = any(p_rows)
    union select m.id, s.memory_id from memories m join memory_sources s using (message_id) where m.id = any(p_rows)
    union select m.id, g.id from memories m join memories g using (session_id)
      where m.id = any(p_rows) and m.kind = 'summary' and g.superseded_by is not null
  ), newer as (
    select distinct on (old.row) old.row, n.id, n.xmin
    from old join memories m on m.id = old.row join memories g on g.id = old.id and g.superseded_by is not null
    join memories n on n.id = memory_newest(g.id)
    where m.kind <> 'summary' or tsvector_to_array(m.lexemes) @> any (
      select array_agg(word) from unnest(tsvector_to_array(g.lexemes)) word
      where word <> all (tsvector_to_array(n.lexemes)))
    order by old.row, g.id desc
  )
  select newer.row, newer.id, newer.xmin::text from newer
  where not exists (select from old where old.row = newer.row and old.id = newer.id)
$$;

-- The memories that a session of this time begins with: the important, the new, pinned ones and preferences, and those
-- with a tag or of a category of p_tags.
create function bootstrap_rows(p_principal uuid, p_as_of timestamptz, p_at_most smallint, p_agent text, p_enough int,
  p_tags text[])
returns setof bigint language sql stable set search_path = supaclaw, pg_temp as $$
  with live as not materialized (
    select * from memories
    where principal_id = p_principal and kind = 'memory' and superseded_at is null and forgotten_at is null
      and agent = p_agent and created_at <= p_as_of and label <= p_at_most
      and (valid_to is null or valid_to > p_as_of)
  )
  (select id from live order by importance desc, id desc limit p_enough)
  union (select id from live order by id desc limit p_enough)
  union (select id from live where pinned or category = 'preference' or tags && '{core,preference}'
         order by importance desc, id desc limit p_enough)
  union (select id from live where cardinality(p_tags) > 0 and (tags && p_tags or category = any(p_tags))
         order by importance desc, id desc limit p_enough)
$$;

-- The newest chat that had ended by then, but p_session, with its summary of then or its last three messages.
create function bootstrap_last(p_principal uuid, p_as_of timestamptz, p_at_most smallint, p_agent text, p_enough int,
  p_session uuid)
returns table (ended_at timestamptz, label smallint, lines text[], rows bigint[])
language sql stable set search_path = supaclaw, pg_temp as $$
  with last as (
    select s.id, s.ended_at, s.label from sessions s
    where s.principal_id = p_principal and s.ended_by_person and s.ended_at <= p_as_of
      and s.id is distinct from p_session and s.label <= p_at_most and s.agent = p_agent
    order by s.ended_at desc limit 1
  ), newest as (
    select * from memories where principal_id = p_principal and kind = 'summary' order by id desc limit p_enough
  ), said as (
    select m.id, t.id as row, case m.kind when 'user' then 'the user: ' else 'the agent: ' end || left(m.text, 200) line
    from messages m join last on m.session_id = last.id left join memories t on t.message_id = m.id
    where seq is not null and withdrawn is null and (m.kind = 'user' or (m.kind = 'assistant' and final))
      and t.forgotten_at is null
    order by seq desc limit 3
  ), summary as (
    select n.id as row, n.text as line
    from newest n join last on n.session_id = last.id and n.created_at <= p_as_of and n.label <= p_at_most
    where n.forgotten_at is null and n.superseded_at is null order by n.id desc limit 1
  ), told as (
    select 0 as id, * from summary union all select * from said where not exists (select from summary)
  )
  select last.ended_at, last.label, array(select line from told order by id),
         array(select coalesce(told.row, 0) from told order by id)
  from last
$$;

-- A digest of both, which differs once any of their rows was changed, forgotten or deleted.
create function bootstrap_version(p_principal uuid, p_as_of timestamptz, p_at_most smallint, p_agent text,
  p_enough int, p_tags text[], p_session uuid)
returns text language sql stable set search_path = supaclaw, pg_temp as $$
  with before as materialized (
    select * from bootstrap_last(p_principal, p_as_of, p_at_most, p_agent, p_enough, p_session)
  )
  select md5(concat(
    (select string_agg(concat(id, ' ', xmin), ',' order by id) from memories
     where id in (select bootstrap_rows(p_principal, p_as_of, p_at_most, p_agent, p_enough, p_tags))),
    (select concat(ended_at, label, lines) from before),
    (select string_agg(r::text, ',' order by r.replaces)
     from memory_replacements(array(select unnest(rows) from before)) r)))
$$;

-- Whether an unread message follows soon on one of its sender that the turn answers, or that has this answer. The edit of
-- a message that is being answered counts however late it comes.
create function follows(p_session uuid, p_answer bigint, p_within interval) returns boolean
language sql stable set search_path = supaclaw as $$
  select exists (
    select from messages u join messages o on o.session_id = u.session_id and o.address_id = u.address_id
      and o.sender = u.sender and (u.created_at <= o.created_at + p_within or u.origin = 'revised')
    where u.session_id = p_session and u.kind = 'user' and u.seq is null
      and u.answered_by is null and u.closed_at is null and not u.solo
      and o.kind = 'user' and o.seq is not null and o.answered_by is not distinct from p_answer
      and o.closed_at is null and not o.solo)
$$;

-- The rows with the greatest share of these words, those with less than p_least left out. Looked at are at most 1,000, of
-- the rarest words.
create function memory_recalled(p_principal uuid, p_words text[], p_at_most smallint, p_k int, p_least double precision)
returns table (id bigint, share double precision) language sql stable set search_path = supaclaw, pg_temp as $$
  with words as materialized (
    select word, idf, sum(df) over (order by df, word) as running from memory_words(p_principal, p_words, 300)
  ), found as (
    select hit.id, sum(idf) / (select sum(idf) from words) as share
    from words cross join lateral (
      select m.id from memories m
      where m.lexemes @@ quote_literal(word)::tsquery and m.principal_id = p_principal and m.label <= p_at_most
        and m.superseded_at is null and m.forgotten_at is null and (m.valid_to is null or m.valid_to > now())) hit
    where running <= 1000 group by hit.id order by 2 desc, 1 desc limit p_k
  )
  select found.id, found.share from found where found.share >= p_least
$$;

revoke all on function transcript, kept_fields, turn_files, take_unread, open_chat, renew, create_chat, say,
  model_called, accept, answer, other_versions, create_task, journal_lines, memory_replacements,
  bootstrap_rows, bootstrap_last, bootstrap_version, follows,
  memory_recalled from public;
grant execute on function say, memory_replacements, bootstrap_rows, bootstrap_last, bootstrap_version
  to supaclaw_member;  -- for members' tools

-- Ranked search in memory. Nothing here names the type or the tables of vectors outside of dynamic SQL: a server without
-- the extension searches by words. How it ranks, and by what measurements: docs/memory.md.

create index memories_by_time on memories (principal_id, created_at);
create index memories_by_session on memories (session_id) where session_id is not null;
create index memories_by_agent on memories (principal_id, agent) where agent <> 'default';

alter index memories_by_lexeme set (fastupdate = off);  -- every search would read the list of what is not in it yet

create type memory_filter as (                          -- an empty array or null: any
  kinds text[], categories text[], tags text[], session_id uuid, agent text, since timestamptz, until timestamptz,
  at_most smallint, pinned boolean, superseded boolean);

-- Inlined, so that its conditions reach the indexes. Whose rows, the caller says.
create function memory_matches(m memories, f memory_filter) returns boolean language sql stable
return m.forgotten_at is null and (m.valid_to is null or m.valid_to > now())
  and (f.superseded or m.superseded_at is null)
  and (cardinality(f.kinds) = 0 or m.kind = any(f.kinds))
  and (cardinality(f.categories) = 0 or m.category = any(f.categories))
  and (cardinality(f.tags) = 0 or m.tags @> f.tags)
  and (f.session_id is null or m.session_id = f.session_id) and (f.agent is null or m.agent = f.agent)
  and (f.since is null or m.created_at >= f.since) and (f.until is null or m.created_at < f.until)
  and (f.pinned is null or m.pinned = f.pinned) and m.label <= f.at_most;

-- What lies around a row: its session, its file; a memory stands alone.
create function memory_surroundings(m memories) returns text language sql immutable
return case m.kind when 'turn' then m.session_id::text when 'chunk' then m.path else 'memory ' || m.id end;

-- What the words weigh, the rarest first. A store of at most p_small rows counts them itself; elsewhere the job `embed`
-- has, and a word that it has not met counts as one row's: it was said a moment ago, or is missed.
create function memory_words(p_principal uuid, p_words text[], p_small int)
returns table (word text, df int, idf real)
language plpgsql stable set search_path = supaclaw, pg_temp as $$
#variable_conflict use_column
declare v_n real; v_words text[]; v_counts int[];
begin
  select count(*) into v_n from (select from memories m where m.principal_id = p_principal limit p_small + 1) rows;
  if v_n <= p_small then
    select array_agg(a), array_agg(c) into v_words, v_counts from (
      select a, count(*)::int as c from memories m, unnest(tsvector_to_array(m.lexemes)) a
      where m.principal_id = p_principal and m.forgotten_at is null and a = any(p_words) group by a) counted;
  else
    select greatest(n, v_n) into v_n from memory_stats where principal_id = p_principal;
    select array_agg(d.lexeme), array_agg(d.df) into v_words, v_counts from memory_df d
    where d.principal_id = p_principal and d.lexeme = any(p_words);
    v_n := coalesce(v_n, p_small);
  end if;
  return query
    select w, greatest(c, 1), ln(1 + (greatest(v_n, c) - greatest(c, 1) + 0.5) / (greatest(c, 1) + 0.5))::real
    from (select distinct unnest(p_words) w) asked left join unnest(v_words, v_counts) as known (k, c) on k = w
    order by 2, 1 limit 64;
end $$;

-- How near an owner's rows usually are to a query, and to each other, by 200 rows spread over the store. The query moves
-- away from their mean, so that rows near to everything do not win. A usual spread counts as 20 rows: few tell little.
create function memory_usual(p_principal uuid, p_model smallint, p_vector text,
  out moved text, out centre real, out spread real, out pair_centre real, out pair_spread real)
language plpgsql stable as $$
begin
  execute $sql$
    with ends as (
      select min(memory_id) as first, max(memory_id) as last from memory_vectors where model = $2 and principal_id = $1
    ), sample as materialized (
      select distinct on (v.memory_id) v.embedding::vector as e from ends, generate_series(0, 199) i cross join lateral (
        select memory_id, embedding from memory_vectors
        where model = $2 and principal_id = $1 and memory_id >= first + (last - first) * i / 199
        order by memory_id limit 1) v
    ), moved as materialized (
      select $3::vector - avg(e) * array_fill(0.7::real, array[vector_dims($3::vector)])::vector as q from sample
    ), near as (
      select 1 - (e <=> q) as c from sample, moved
    ), fewer as materialized (
      select e, i from (select e, row_number() over () as i from sample) s where i % 4 = 1
    ), pairs as (
      select 1 - (a.e <=> b.e) as c from fewer a join fewer b on a.i < b.i
    )
    select q::text, n.centre, sqrt((n.v * n.n + 0.0009 * 20) / (n.n + 20)), p.centre, p.spread
    from moved, (select avg(c) as centre, coalesce(var_pop(c), 0) as v, count(*) as n from near) n,
         (select avg(c) as centre, greatest(stddev_pop(c), 0.01) as spread from pairs) p
  $sql$ into moved, centre, spread, pair_centre, pair_spread using p_principal, p_model, p_vector;
end $$;

-- The p_depth rows nearest to a query: exactly among few, else by the index, which goes on until it has as many.
create function memory_nearest(
  p_principal uuid, p_model smallint, p_vector text, f memory_filter, p_depth int, p_exact boolean)
returns bigint[] language plpgsql stable as $$
declare
  v_ids bigint[];
  v_distance text := format('(v.embedding::halfvec(%1$s) <=> $2::halfvec(%1$s))', vector_dims(p_vector::vector));
begin
  perform set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '200', true);
  execute format($sql$
    select array_agg(memory_id order by distance) from (
      select v.memory_id, %2$s as distance from memory_vectors v join memories m on m.id = v.memory_id
      where v.model = %1$s and v.principal_id = $1 and m.principal_id = $1 and memory_matches(m, $3)
      order by %2$s %3$s limit $4) nearest
    $sql$, p_model, v_distance, case when p_exact then '+ 0' else '' end)
    into v_ids using p_principal, p_vector, f, p_depth;
  return v_ids;
end $$;

create function memory_cosines(p_model smallint, p_ids bigint[], p_moved text, p_vector text)
returns table (id bigint, moved real, cosine real) language plpgsql stable as $$
begin
  if p_model is null then
    return;
  end if;
  return query execute 'select memory_id, (1 - (embedding <=> $3::halfvec))::real, (1 - (embedding <=> $4::halfvec))::real
                        from memory_vectors where model = $1 and memory_id = any($2)'
    using p_model, p_ids, p_moved, p_vector;
end $$;

-- Of each of the first five ids, the one later in time and elsewhere that says nearly the same, if there is one.
create function memory_corrections(p_model smallint, p_ids bigint[], p_at_least real)
returns table (id bigint, correction bigint) language plpgsql stable as $$
begin
  if p_model is null then
    return;
  end if;
  return query execute $sql$
    select distinct on (o.id) o.id, n.id
    from memories o join memory_vectors ov on ov.memory_id = o.id and ov.model = $1
    join memories n on n.id = any($2) and n.created_at > o.created_at and memory_surroundings(n) <> memory_surroundings(o)
    join memory_vectors nv on nv.memory_id = n.id and nv.model = $1
    where o.id = any($2[1:5]) and o.kind = 'turn' and n.kind = 'turn' and 1 - (nv.embedding <=> ov.embedding) >= $3
    order by o.id, nv.embedding <=> ov.embedding, n.id desc
  $sql$ using p_model, p_ids, p_at_least;
end $$;

-- What took the place of a memory, of which the last is in force.
create function memory_newest(p_id bigint) returns bigint language sql stable set search_path = supaclaw, pg_temp as $$
  with recursive chain as (
    select id, superseded_by, 0 as step from memories where id = p_id
    union all
    select m.id, m.superseded_by, step + 1 from chain join memories m on m.id = chain.superseded_by where step < 20
  )
  select id from chain order by step desc limit 1
$$;

-- The rows that answer a query best; and those not shown for their label that would have been among them.
--   z     how far a row's cosine stands out, in standard deviations of the owner's usual
--   words the share of the query's IDF mass that a row has; what nobody ever wrote counts as missed
--   b     z + 5 words: evidence;  h = what of b lies above the last candidate: it is lent to what lies around
--   score b + .5 h of the row before + .25 of the second before + .2 of the one after + .35 of a memory learned from it
--           + 2 · share of the query in its surroundings + .4 · the best z there
--           + up to 1 for eight words and more, for few say little - .8 of a question, for it seldom holds an answer
-- A later row that says nearly the same as one of the first five overtakes it, and so does what replaced it for certain.
create function hybrid_search(p_principal uuid, p_words text[], p_vector text, p_model smallint, f memory_filter, p_k int,
  w_importance real default 0, w_recency real default 0)
returns table (id bigint, score real, words real, cosine real, shown boolean)
language plpgsql stable set search_path = supaclaw, public, extensions, pg_temp
set jit = off set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  depth constant int := 100;
  lenders constant int := 40;
  few constant int := 5000;                             -- rows that are compared one by one
  hits constant int := 2000;                            -- rows of the rarest words that are looked at among many
  everything memory_filter := f;
  v_model smallint := p_model; v_narrow boolean; v_matching int; v_floor_at int;
  v_words text[]; v_idf real[]; v_mass real; v_queries tsquery[]; v_weights real[];
  v_moved text; v_centre real; v_spread real; v_alike real; v_by_word bigint[]; v_near bigint[]; v_rows bigint[]; v_groups text[]; v_coverage real[];
begin
  everything.at_most := 2;
  select count(*) into v_matching from (
    select from memories m where m.principal_id = p_principal and memory_matches(m, everything) limit few + 1) m;
  v_narrow := v_matching <= few;
  v_floor_at := least(depth, greatest(5, v_matching / 6));

  select array_agg(w.word order by w.df, w.word), array_agg(w.idf order by w.df, w.word), greatest(sum(w.idf), 1e-6),
         array_agg(quote_literal(w.word)::tsquery order by w.df, w.word) filter (where v_narrow or w.running <= hits)
  into v_words, v_idf, v_mass, v_queries
  from (select *, sum(df) over (order by df, word) as running from memory_words(p_principal, p_words, 2000)) w;
  v_weights := v_idf;
  if v_queries is null and v_words is not null then     -- common words only: rows that have all of them
    v_queries := array[(select string_agg(quote_literal(w), ' & ') from unnest(v_words) w)::tsquery];
    v_weights := array[v_mass];
  end if;

  with hits as materialized (
    select m.id, memory_surroundings(m) as around, m.label <= f.at_most as shown, g
    from memories m, generate_subscripts(v_queries, 1) g
    where v_narrow and m.principal_id = p_principal and memory_matches(m, everything) and m.lexemes @@ v_queries[g]
    union all
    select hit.* from generate_subscripts(v_queries, 1) g cross join lateral (
      select m.id, memory_surroundings(m), m.label <= f.at_most, g from memories m
      where m.lexemes @@ v_queries[g] and m.principal_id = p_principal and memory_matches(m, everything)
      limit 4 * hits) hit
    where not v_narrow
  ), ranked as (
    select id, row_number() over (partition by shown order by sum(v_weights[g]) desc, id desc) as rank
    from hits group by id, shown
  ), covered as (
    select around, sum(v_weights[g]) / v_mass as share
    from (select distinct around, g from hits where shown) d group by around
  )
  select (select array_agg(id order by rank) from ranked where rank <= depth),
         (select array_agg(around order by around) from covered), (select array_agg(share order by around) from covered)
  into v_by_word, v_groups, v_coverage;

  if v_model is not null then
    select moved, centre, spread, pair_centre + 2.4 * pair_spread into v_moved, v_centre, v_spread, v_alike
    from memory_usual(p_principal, v_model, p_vector);
    if v_moved is null then
      v_model := null;                                  -- no row of theirs has a vector yet
    else
      v_near := memory_nearest(p_principal, v_model, v_moved, everything, depth, v_narrow);
      if exists (select from memories m where m.id = any(v_near) and m.label > f.at_most) then
        v_near := memory_nearest(p_principal, v_model, v_moved, f, depth, v_narrow) || v_near;
      end if;
    end if;
  end if;

  select array_agg(distinct found.id) into v_rows from (
    select unnest(v_by_word || v_near) as id
    union all
    select n.id from memories m cross join unnest(array[-1, 1, 2]) step
    join memories n on n.kind = 'turn' and n.session_id = m.session_id and n.place = m.place + step
    where m.id = any(v_by_word[:lenders] || v_near[:lenders]) and m.kind = 'turn' and memory_matches(n, f)
    union all
    select n.id from memories m cross join unnest(array[-1, 1, 2]) step
    join memories n on n.kind = 'chunk' and n.principal_id = p_principal and n.path = m.path and n.place = m.place + step
    where m.id = any(v_by_word[:lenders] || v_near[:lenders]) and m.kind = 'chunk' and memory_matches(n, f)
    union all
    select n.id from memory_sources s join memories n on n.message_id = s.message_id
    where s.memory_id = any(v_by_word[:lenders] || v_near[:lenders]) and memory_matches(n, f)
  ) found;

  return query
  with candidates as materialized (
    select m.id, memory_surroundings(m) as around, m.kind, m.place, m.message_id, m.importance, m.created_at,
           m.label <= f.at_most as shown, m.id = any(v_by_word || v_near) as found, m.id = any(v_near) as near,
           coalesce(held.idf, 0) / v_mass as words, c.cosine,
           coalesce((c.moved - v_centre) / v_spread, 0) as z,
           least(1, length(m.lexemes) / 8.0)
             - case when right(rtrim(coalesce(m.text, said.text)), 1) in ('?', '？', '؟') then 0.8 else 0 end as prior
    from memories m left join messages said on said.id = m.message_id
    left join memory_cosines(v_model, v_rows, v_moved, p_vector) c on c.id = m.id
    left join lateral (select sum(v_idf[array_position(v_words, a)]) as idf
                       from unnest(tsvector_to_array(m.lexemes)) a where a = any(v_words)) held on true
    where m.id = any(v_rows)
  ), evidence as (
    select *, z + 5 * coalesce(words, 0) as b, row_number() over (partition by found and shown order by z + 5 * words desc) as rank
    from candidates
  ), floor as (
    select coalesce(max(b) filter (where rank = v_floor_at),
                    case when v_model is null then 0 else min(b) end) as b,
           coalesce(min(z) filter (where near), 0) as z
    from evidence where found and shown
  ), lent as materialized (
    select e.*, case when e.found and e.shown then greatest(e.b - floor.b, 0) else 0 end as h, floor.z as least_z
    from evidence e, floor
  ), learned as materialized (                          -- from these messages
    select s.message_id, max(l.h) as h from lent l join memory_sources s on s.memory_id = l.id
    where l.h > 0 and l.kind <> 'turn' group by s.message_id
  ), placed as (
    select *, case when lag(place) over w = place - 1 then lag(h) over w else 0 end as before,
              case when lag(place) over w = place - 2 then lag(h) over w
                   when lag(place, 2) over w = place - 2 then lag(h, 2) over w else 0 end as second_before,
              case when lead(place) over w = place + 1 then lead(h) over w else 0 end as after,
              max(z) filter (where near and shown) over (partition by around) - least_z as best_z
    from lent window w as (partition by around order by place)
  ), scored as materialized (
    select p.id, p.words, p.cosine, p.shown,
           (p.b + 0.5 * p.before + 0.25 * p.second_before + 0.2 * p.after
            + 0.35 * coalesce(learned.h, 0)
            + 2 * coalesce(c.share, case when p.place is null then p.words end, 0) + 0.4 * coalesce(p.best_z, 0) + p.prior
            + w_importance * p.importance
            + w_recency * exp(-extract(epoch from now() - p.created_at) / 86400 / 30))::real as score
    from placed p left join unnest(v_groups, v_coverage) as c (around, share) using (around)
    left join learned using (message_id)
  ), pool as materialized (
    select *, row_number() over (order by score desc, id desc) as rank from scored where shown
  ), corrections as materialized (
    select x.correction as id, max(o.score) + 0.01 as raised
    from memory_corrections(v_model, array(select id from pool where rank <= 30 order by rank), v_alike) x
    join pool o on o.id = x.id group by x.correction
  ), corrected as (
    select p.*, greatest(p.score, x.raised) as raised from pool p left join corrections x using (id)
  ), replaced as (                                      -- by what is known to be newer: itself, and where it was said
    select n.id, max(o.raised) + 0.01 as raised
    from corrected o
    join memories old on old.id = o.id
    join lateral (select old.id as memory_id where old.superseded_by is not null
                  union select s.memory_id from memory_sources s where s.message_id = old.message_id) was on true
    join memories gone on gone.id = was.memory_id and gone.superseded_by is not null
    join lateral (select memory_newest(gone.id) as id
                  union select t.id from memory_sources s join memories t on t.message_id = s.message_id
                        where s.memory_id = memory_newest(gone.id)) newer on true
    join memories n on n.id = newer.id
    where o.rank <= 30 and n.id <> o.id and memory_matches(n, f)
    group by n.id
  ), final as (
    select coalesce(c.id, r.id) as id, greatest(c.raised, r.raised)::real as score, coalesce(c.words, 0)::real as words,
           c.cosine
    from corrected c full join replaced r using (id)
    order by 2 desc, 1 desc limit p_k
  )
  select id, score, words, cosine, true from final
  union all
  select s.id, s.score, s.words::real, s.cosine, false from scored s
  where not s.shown and s.score >= coalesce((select min(score) from final having count(*) >= p_k), 0)
  order by 5 desc, 2 desc, 1 desc;
end $$;

-- The rows with the greatest share of the words: by the index alone, for every turn of a chat.
create function keyword_search(p_principal uuid, p_words text[], f memory_filter, p_k int)
returns table (id bigint, score real)
language plpgsql stable set search_path = supaclaw, pg_temp set jit = off set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare v_queries tsquery[]; v_idf real[]; v_mass real;
begin
  select array_agg(quote_literal(w.word)::tsquery order by w.df, w.word) filter (where w.running <= 1000),
         array_agg(w.idf order by w.df, w.word), greatest(sum(w.idf), 1e-6)
  into v_queries, v_idf, v_mass
  from (select *, sum(df) over (order by df, word) as running from memory_words(p_principal, p_words, 300)) w;
  return query
    select hit.id, (sum(v_idf[g]) / v_mass)::real from generate_subscripts(v_queries, 1) g cross join lateral (
      select m.id from memories m
      where m.lexemes @@ v_queries[g] and m.principal_id = p_principal and memory_matches(m, f)) hit
    group by hit.id order by 2 desc, 1 desc limit p_k;
end $$;

do $$
declare r text; f text;
begin
  foreach f in array array[
    'memory_matches', 'memory_surroundings', 'memory_words', 'memory_usual', 'memory_nearest', 'memory_cosines',
    'memory_corrections', 'memory_newest', 'hybrid_search', 'keyword_search'] loop
    execute format('revoke all on function %I from public', f);
    execute format('grant execute on function %I to supaclaw_member', f);
    for r in select rolname from pg_roles where rolname in ('anon', 'authenticated') loop
      execute format('revoke all on function %I from %I', f, r);
    end loop;
  end loop;
end $$;

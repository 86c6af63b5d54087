-- Searches of large stores. The statements that only read rows of known ids are planned once a connection; those that
-- look for rows are planned for their filter, for only so its conditions reach the indexes.

drop function keyword_search;
alter type memory_filter add attribute min_importance double precision;

create or replace function memory_matches(m memories, f memory_filter) returns boolean language sql stable
return m.forgotten_at is null and (m.valid_to is null or m.valid_to > now())
  and (f.superseded or m.superseded_at is null)
  and (cardinality(f.kinds) = 0 or m.kind = any(f.kinds))
  and (cardinality(f.categories) = 0 or m.category = any(f.categories))
  and (cardinality(f.tags) = 0 or m.tags @> f.tags)
  and (f.session_id is null or m.session_id = f.session_id) and (f.agent is null or m.agent = f.agent)
  and (f.since is null or m.created_at >= f.since) and (f.until is null or m.created_at < f.until)
  and (f.pinned is null or m.pinned = f.pinned) and m.label <= f.at_most
  and (f.min_importance is null or m.importance >= f.min_importance);

create index memories_by_tag on memories using gin (tags) where kind in ('memory', 'summary');

-- Of vectors, static SQL: it is parsed at its first use, so a server without the extension takes it.
create or replace function memory_usual(p_principal uuid, p_model smallint, p_vector text,
  out moved text, out centre real, out spread real, out pair_centre real, out pair_spread real)
language plpgsql stable set plan_cache_mode = force_generic_plan as $$
begin
  with ends as (
    select min(memory_id) as first, max(memory_id) as last
    from memory_vectors where model = p_model and principal_id = p_principal
  ), sample as materialized (
    select distinct on (v.memory_id) v.embedding::vector as e from ends, generate_series(0, 199) i cross join lateral (
      select memory_id, embedding from memory_vectors
      where model = p_model and principal_id = p_principal and memory_id >= first + (last - first) * i / 199
      order by memory_id limit 1) v
  ), asked as materialized (
    select p_vector::vector as q
  ), moved_ as materialized (
    select q - mean * array_fill(0.7::real, array[vector_dims(q)])::vector as q
    from asked, (select avg(e) as mean from sample) s where mean is not null
  ), near as (
    select 1 - (e <=> q) as c from sample, moved_
  ), fewer as materialized (
    select e, i from (select e, row_number() over () as i from sample) s where i % 4 = 1
  ), pairs as (
    select 1 - (a.e <=> b.e) as c from fewer a join fewer b on a.i < b.i
  )
  select q::text, n.centre, sqrt((n.v * n.n + 0.0009 * 20) / (n.n + 20)), p.centre, p.spread
  into moved, centre, spread, pair_centre, pair_spread
  from moved_, (select avg(c) as centre, coalesce(var_pop(c), 0) as v, count(*) as n from near) n,
       (select avg(c) as centre, greatest(stddev_pop(c), 0.01) as spread from pairs) p;
end $$;

-- By the index, which gives up before it has enough where few rows of many match: then exactly.
create or replace function memory_nearest(
  p_principal uuid, p_model smallint, p_vector text, f memory_filter, p_depth int, p_exact boolean)
returns bigint[] language plpgsql stable as $$
declare
  v_ids bigint[];
  v_exact boolean;
  v_distance text := format('(v.embedding::halfvec(%1$s) <=> $2::halfvec(%1$s))', vector_dims(p_vector::vector));
begin
  perform set_config('hnsw.iterative_scan', 'relaxed_order', true), set_config('hnsw.ef_search', '200', true);
  foreach v_exact in array array[p_exact, true] loop
    execute format($sql$
      select array_agg(memory_id order by distance) from (
        select v.memory_id, %2$s as distance from memory_vectors v join memories m on m.id = v.memory_id
        where v.model = %1$s and v.principal_id = $1 and m.principal_id = $1 and memory_matches(m, $3)
        order by %2$s %3$s limit $4) nearest
      $sql$, p_model, v_distance, case when v_exact then '+ 0' else '' end)
      into v_ids using p_principal, p_vector, f, p_depth;
    exit when v_exact or cardinality(v_ids) = p_depth;
  end loop;
  return v_ids;
end $$;

create or replace function memory_cosines(p_model smallint, p_ids bigint[], p_moved text, p_vector text)
returns table (id bigint, moved real, cosine real) language plpgsql stable as $$
begin
  if p_model is null then
    return;
  end if;
  return query
    with asked as materialized (select p_moved::halfvec as moved, p_vector::halfvec as whole)
    select v.memory_id, (1 - (v.embedding <=> a.moved))::real, (1 - (v.embedding <=> a.whole))::real
    from asked a, memory_vectors v where v.model = p_model and v.memory_id = any(p_ids);
end $$;

create or replace function memory_corrections(p_model smallint, p_ids bigint[], p_at_least real)
returns table (id bigint, correction bigint) language plpgsql stable as $$
begin
  if p_model is null then
    return;
  end if;
  return query
    select distinct on (o.id) o.id, n.id
    from memories o join memory_vectors ov on ov.memory_id = o.id and ov.model = p_model
    join memories n on n.id = any(p_ids) and n.created_at > o.created_at
      and memory_surroundings(n) <> memory_surroundings(o)
    join memory_vectors nv on nv.memory_id = n.id and nv.model = p_model
    where o.id = any(p_ids[1:5]) and o.kind = 'turn' and n.kind = 'turn' and 1 - (nv.embedding <=> ov.embedding) >= p_at_least
    order by o.id, nv.embedding <=> ov.embedding, n.id desc;
end $$;

-- Of what follows the search for rows, all is by their ids. The vectors give at least as many rows as are asked for. Where
-- few rows match, they are compared with the words, instead of looking up each word, which many other rows may have.
do $$
declare
  v_body text := pg_get_functiondef('hybrid_search'::regproc);
  v_change text[];
begin
  foreach v_change slice 1 in array array[
    ['depth constant int := 100;', 'depth constant int := greatest(100, p_k);'],
    ['v_floor_at := least(depth,', 'v_floor_at := least(100,'],
    ['  select array_agg(distinct found.id)',
     '  perform set_config(''plan_cache_mode'', ''force_generic_plan'', true);' || chr(10)
     || '  select array_agg(distinct found.id)'],
    [$old$
    select m.id, memory_surroundings(m) as around, m.label <= f.at_most as shown, g
    from memories m, generate_subscripts(v_queries, 1) g
    where v_narrow and m.principal_id = p_principal and memory_matches(m, everything) and m.lexemes @@ v_queries[g]
$old$, $new$
    select m.id, m.around, m.label <= f.at_most as shown, g
    from (select m.id, m.label, m.lexemes, memory_surroundings(m) as around from memories m
          where v_narrow and m.principal_id = p_principal and memory_matches(m, everything) offset 0) m,
         generate_subscripts(v_queries, 1) g where m.lexemes @@ v_queries[g]
$new$]] loop
    assert strpos(v_body, v_change[1]) > 0, v_change[1];
    v_body := replace(v_body, v_change[1], v_change[2]);
  end loop;
  execute v_body;
end $$;

with chosen as materialized (
  select id, principal_id, lexemes from memories where not counted and lexemes is not null
  order by id limit $1 for update skip locked
), marked as (
  update memories m set counted = true from chosen c where m.id = c.id
), words as (
  insert into memory_df (principal_id, lexeme, df)
  select principal_id, lexeme, count(*) from chosen, unnest(tsvector_to_array(lexemes)) lexeme group by 1, 2
  on conflict (principal_id, lexeme) do update set df = memory_df.df + excluded.df
), totals as (
  insert into memory_stats (principal_id, n) select principal_id, count(*) from chosen group by 1
  on conflict (principal_id) do update set n = memory_stats.n + excluded.n
)
select count(*) from chosen

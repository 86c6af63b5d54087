with gone as materialized (
  delete from memory_gone where id in (select id from memory_gone order by id limit $1) returning principal_id, lexemes
), words as materialized (
  select principal_id, lexeme, count(*)::int as n from gone, unnest(tsvector_to_array(lexemes)) lexeme group by 1, 2
), fewer as (
  update memory_df d set df = d.df - w.n from words w
  where d.principal_id = w.principal_id and d.lexeme = w.lexeme and d.df > w.n
), none as (
  delete from memory_df d using words w
  where d.principal_id = w.principal_id and d.lexeme = w.lexeme and d.df <= w.n
), totals as (
  update memory_stats s set n = s.n - g.n from (select principal_id, count(*) as n from gone group by 1) g
  where s.principal_id = g.principal_id
)
select count(*) from gone

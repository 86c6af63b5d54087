"""In how many of a principal's rows a word stands. One writer at a time: the job `embed`, never a turn or a search.

A row says itself whether it is counted, and what is no longer counted waits in `memory_gone`: each transaction counts
what it marks, so whatever breaks off, nothing counts twice.
"""

from gateway.domain.memory import Kind, content_hash
from gateway.memory.lexemes import lexemes
from gateway.store.connection.pool import Connection

_COUNT = """
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
"""

_TAKE_OFF = """
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
"""


async def count(tx: Connection, limit: int) -> int:
    """Count rows that are not, and take off what is gone, at most so many of each; returns how many it was."""
    await tx.execute("select pg_advisory_xact_lock(hashtextextended('memory_df', 0))")
    await _give_words(tx, limit)
    gone = await tx.fetchval(_TAKE_OFF, limit)
    return int(gone + await tx.fetchval(_COUNT, limit))


async def _give_words(tx: Connection, limit: int) -> None:
    """To memories older than these; two that say the same are one from now on."""
    sql = """select id, principal_id, kind, agent, text from memories
             where not counted and lexemes is null order by id limit $1 for update"""
    rows = await tx.fetch(sql, limit)
    for row in rows:
        sql = """update memories set lexemes = array_to_tsvector($2::text[]), content_hash = $3,
                   superseded_by = coalesce(superseded_by, same.id),
                   superseded_at = coalesce(superseded_at, case when same.id is not null then now() end)
                 from (select max(id) as id from memories where principal_id = $4 and agent = $5 and content_hash = $3
                         and superseded_at is null and forgotten_at is null) same
                 where memories.id = $1"""
        await tx.execute(
            sql,
            row["id"],
            lexemes(row["text"]),
            content_hash(row["text"]) if row["kind"] == Kind.MEMORY else None,
            row["principal_id"],
            row["agent"],
        )

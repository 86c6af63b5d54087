"""What a turn is reminded of unasked: the rows that share most of a question's words."""

from collections.abc import Sequence

import asyncpg

from gateway.domain.ids import PrincipalId
from gateway.domain.memory import Memory
from gateway.domain.principals import Label
from gateway.store.connection.pool import Connection
from gateway.store.memory.memories import memory_of

TIMEOUT_MS = 20
"""What a turn waits at most: it goes on without them."""

_FOUND = """
with words as materialized (
  select word, idf, sum(df) over (order by df, word) as running from memory_words($1, $2, 300)
), found as (
  select hit.id, sum(idf) / (select sum(idf) from words) as share
  from words cross join lateral (
    select id from memories m
    where m.lexemes @@ quote_literal(word)::tsquery and m.principal_id = $1 and m.label <= $3
      and m.superseded_at is null and m.forgotten_at is null and (m.valid_to is null or m.valid_to > now())) hit
  where running <= 1000 group by hit.id order by 2 desc, 1 desc limit $4
)
select r.* from found join remembered r using (id) where share >= $5 order by share desc, id desc"""


async def recalled(
    conn: Connection, principal: PrincipalId, words: Sequence[str], at_most: Label, k: int, least: float = 0.0
) -> list[Memory]:
    """The `k` rows with the greatest share of these lexemes, those with less than `least` left out.

    Looked at are at most 1,000 rows, of the rarest words. None are found if it takes too long.
    """
    begin, end = ("savepoint recalled", "rollback to recalled") if conn.is_in_transaction() else ("begin", "rollback")
    await conn.execute(f"{begin}; set local statement_timeout to {TIMEOUT_MS}")  # one round trip for both
    try:
        rows = await conn.fetch(_FOUND, principal, list(words), at_most, k, least)
    except asyncpg.QueryCanceledError:
        rows = []
    finally:
        await conn.execute(end)
    return [memory_of(row) for row in rows]

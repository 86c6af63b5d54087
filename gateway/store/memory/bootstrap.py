"""The memories that every new session begins with: the previous conversation, and the most important ones."""

from collections.abc import Collection
from datetime import datetime

from gateway.domain.ids import MessageId, PrincipalId, SessionId
from gateway.domain.memory.memories import DEFAULT_AGENT, Memory
from gateway.domain.principals import Label
from gateway.memory.wording import LastSession
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first
from gateway.store.memory.memories import memory_of
from gateway.store.memory.search import REPLACED

ENOUGH = 100
"""Memories of each sort that are looked at."""

_CHOSEN = """
live as not materialized (
  select * from memories
  where principal_id = $1 and kind = 'memory' and superseded_at is null and forgotten_at is null and agent = $4
    and created_at <= $2 and label <= $3 and (valid_to is null or valid_to > $2)
), chosen as (
  (select id from live order by importance desc, id desc limit $5)
  union (select id from live order by id desc limit $5)
  union (select id from live where pinned or category = 'preference' or tags && '{core,preference}'
         order by importance desc, id desc limit $5)
  union (select id from live where cardinality($6::text[]) > 0 and (tags && $6 or category = any($6))
         order by importance desc, id desc limit $5)
)"""

_LAST = """
last as (
  select id, ended_at, label from sessions
  where principal_id = $1 and ended_by_person and ended_at <= $2 and id is distinct from {session} and label <= $3
    and agent = $4
  order by ended_at desc limit 1
), newest as (
  select * from memories where principal_id = $1 and kind = 'summary' order by id desc limit $5
), said as (
  select m.id, t.id as row, case m.kind when 'user' then 'the user: ' else 'the agent: ' end || left(m.text, 200) line
  from messages m join last on m.session_id = last.id left join memories t on t.message_id = m.id
  where seq is not null and withdrawn is null and (m.kind = 'user' or (m.kind = 'assistant' and final))
    and t.forgotten_at is null
  order by seq desc limit 3
), summary as (
  select n.id as row, text as line
  from newest n join last on n.session_id = last.id and n.created_at <= $2 and n.label <= $3
  where n.forgotten_at is null and n.superseded_at is null order by n.id desc limit 1
), lines as (
  select 0 as id, * from summary union all select * from said where not exists (select from summary)
), before as (
  select ended_at, label, array(select line from lines order by id) as lines,
         array(select coalesce(lines.row, 0) from lines order by id) as rows from last
), {replaced}"""


_EACH = """with {} select * from remembered where id in (select id from chosen) order by id"""
_BEFORE = """with {} select * from before"""
_DIGEST = """with {}, {}
select md5(concat(
  (select string_agg(concat(id, ' ', xmin), ',' order by id) from memories where id in (select id from chosen)),
  (select concat(ended_at, label, lines) from before),
  (select string_agg(newer::text, ',' order by newer.row) from newer))) as version,
  array(select other_versions($7, $8)) as others"""
_CANDIDATES = _EACH.format(_CHOSEN)
_OF_LAST = REPLACED.format(rows="array(select unnest(rows) from before)")
_LAST_CHAT = _BEFORE.format(_LAST.format(session="$6", replaced=_OF_LAST))
_VERSION = _DIGEST.format(_CHOSEN, _LAST.format(session="$7", replaced=_OF_LAST))


async def last_chat(
    conn: Connection,
    principal: PrincipalId,
    session: SessionId | None,
    as_of: datetime,
    at_most: Label,
    agent: str = DEFAULT_AGENT,
) -> LastSession | None:
    """The newest that had ended by then, but this session, with its summary of then or its last three messages."""
    return await fetch_first(conn, LastSession, _LAST_CHAT, principal, as_of, at_most, agent, ENOUGH, session)


async def candidates(
    conn: Connection,
    principal: PrincipalId,
    as_of: datetime,
    tags: Collection[str],
    at_most: Label,
    agent: str = DEFAULT_AGENT,
) -> list[Memory]:
    """The important, the new, those that are pinned or preferences, and those with one of these tags or categories."""
    return await fetch_all(conn, memory_of, _CANDIDATES, principal, as_of, at_most, agent, ENOUGH, _further(tags))


MAX_OTHER_VERSIONS = 1_000
"""The newest messages of other versions that are compared."""


async def version(
    conn: Connection,
    principal: PrincipalId,
    session: SessionId | None,
    as_of: datetime,
    tags: Collection[str],
    at_most: Label,
    agent: str = DEFAULT_AGENT,
) -> tuple[str, frozenset[MessageId]]:
    """A digest of both, which differs once any of their rows was changed, forgotten or deleted.

    With it, the other versions of the messages of the session, if that is a branch.
    """
    row = await conn.fetchrow(
        _VERSION, principal, as_of, at_most, agent, ENOUGH, _further(tags), session, MAX_OTHER_VERSIONS
    )
    assert row is not None, "it has no condition"
    return row["version"], frozenset(map(MessageId, row["others"]))


def _further(tags: Collection[str]) -> list[str]:
    """Those that are not looked for anyway."""
    return [tag for tag in tags if tag not in ("core", "preference")]

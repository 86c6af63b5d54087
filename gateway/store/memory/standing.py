"""What is known without being asked for: the conversation before this one, and the memories that matter most."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.memory import DEFAULT_AGENT, Memory
from gateway.domain.principals import Label
from gateway.store.memory.memories import memory_of
from gateway.store.pool import Connection

ENOUGH = 100
"""Memories of each sort that are looked at."""

_CANDIDATES = """
with live as not materialized (
  select * from memories
  where principal_id = $1 and kind = 'memory' and superseded_at is null and forgotten_at is null and agent = $6
    and created_at <= $2 and label <= $3 and (valid_to is null or valid_to > $2)
), chosen as (
  (select id from live order by importance desc, id desc limit $5)
  union (select id from live order by id desc limit $5)
  union (select id from live where pinned or category = 'preference' or tags && '{core,preference}'
         order by importance desc, id desc limit $5)
  union (select id from live where cardinality($4::text[]) > 0 and (tags && $4 or category = any($4))
         order by importance desc, id desc limit $5)
)
select * from remembered where id in (select id from chosen) order by id"""


@dataclass(frozen=True, slots=True)
class LastChat:
    """A conversation that ended: what was made of it, or else what was said last."""

    ended_at: datetime
    label: Label
    text: str


async def last_chat(
    conn: Connection,
    principal: PrincipalId,
    session: SessionId | None,
    as_of: datetime,
    at_most: Label,
    agent: str = DEFAULT_AGENT,
) -> LastChat | None:
    """The newest that had ended by then, but this session, with its summary of then or its last three messages."""
    row = await conn.fetchrow(
        """with last as (
             select id, ended_at, label from sessions
             where principal_id = $1 and ended_by_person and ended_at <= $3 and id is distinct from $2 and label <= $4
               and agent = $6
             order by ended_at desc limit 1),
           newest as (
             select * from memories where principal_id = $1 and kind = 'summary' order by id desc limit $5),
           said as (
             select m.id, case kind when 'user' then 'the user: ' else 'the agent: ' end || left(text, 200) as line
             from messages m join last on m.session_id = last.id
             where seq is not null and (kind = 'user' or (kind = 'assistant' and final)) order by seq desc limit 3)
           select ended_at, label, coalesce(
             (select text from newest n where n.session_id = last.id and n.created_at <= $3 and n.label <= $4
                and n.forgotten_at is null and n.superseded_at is null order by n.id desc limit 1),
             (select string_agg(line, '; ' order by id) from said), '') as text
           from last""",
        principal,
        session,
        as_of,
        at_most,
        ENOUGH,
        agent,
    )
    return LastChat(**{**row, "label": Label(row["label"])}) if row else None


async def candidates(
    conn: Connection,
    principal: PrincipalId,
    as_of: datetime,
    tags: Collection[str],
    at_most: Label,
    agent: str = DEFAULT_AGENT,
) -> list[Memory]:
    """The important, the new, those that are pinned or preferences, and those with one of these tags or categories."""
    rows = await conn.fetch(
        _CANDIDATES,
        principal,
        as_of,
        at_most,
        [tag for tag in tags if tag not in ("core", "preference")],
        ENOUGH,
        agent,
    )
    return [memory_of(row) for row in rows]

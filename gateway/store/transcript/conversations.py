"""Conversations: the sessions of one person as they list, name and read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from asyncpg import Record

from gateway.domain.ids import PrincipalId, SessionId
from gateway.domain.principals import Label
from gateway.domain.text import titles
from gateway.domain.text.texts import one_line, storable
from gateway.store.connection.pool import Connection
from gateway.store.transcript.messages import MessageRow

_LISTED = """
select s.id, s.title as given, s.agent, s.label, s.unattended, s.next_seq - 1 as messages, s.started_at,
       s.spoken_at as last_at, s.ended_at, s.parent_id as parent, first.text as asked,
       coalesce(at.channel, split_part(replace(first.origin, 'earlier', 'api'), ':', 1)) as channel,
       at.id is not null and not s.unattended and s.agent = 'default'
         and (at.channel not in ('api', 'terminal') or at.account = 'local') as ours,
       (select name from attachments where message_id = first.id order by place limit 1) as file,
       (select left(text, 600) from memories m where m.session_id = s.id and kind = 'summary'
          and superseded_at is null and forgotten_at is null order by id desc limit 1) as summary,
       s.id in (select session_id from tasks where status = 'running') as answering,
       array(select distinct channel from addresses where session_id = s.id order by 1) as open_on
from sessions s
cross join lateral (
  select id, left(text, 600) as text, origin, address_id from (
    (select * from messages where session_id = s.id and kind = 'user' and seq is not null order by seq limit 1)
    union all
    (select * from messages where session_id = s.id and kind = 'user' and seq is null order by id limit 1)) said
  limit 1) first
left join addresses at on at.id = first.address_id and not s.unattended
where s.principal_id = $1 """


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session in which something was said; `channel` is where it began, `open_on` where it goes on now.

    `given` is the title its person chose, or "". `answering`: a turn runs. `ours`: no program's, import's or run's.
    What `parent` holds up to some place is read in it, and counts there alone.
    """

    id: SessionId
    title: str
    given: str
    channel: str
    agent: str
    label: Label
    unattended: bool
    ours: bool
    messages: int
    answering: bool
    open_on: tuple[str, ...]
    started_at: datetime
    last_at: datetime
    ended_at: datetime | None
    parent: SessionId | None


async def listed(
    conn: Connection, principal: PrincipalId, limit: int, offset: int = 0, *, unattended: bool = False
) -> list[Conversation]:
    """Chats, or what ran by itself, the one last spoken in first."""
    query = f"{_LISTED} and s.unattended = $2 order by s.spoken_at desc limit $3 offset $4"
    return [_conversation(row) for row in await conn.fetch(query, principal, unattended, limit, offset)]


async def these(
    conn: Connection, principal: PrincipalId, sessions: Sequence[SessionId]
) -> dict[SessionId, Conversation]:
    """Those of this person's that are among them."""
    found = map(_conversation, await conn.fetch(f"{_LISTED} and s.id = any($2)", principal, sessions))
    return {of.id: of for of in found}


async def beginning(conn: Connection, principal: PrincipalId, id: str) -> Conversation | None:
    """The only one of this person's whose id begins so."""
    query = f"{_LISTED} and starts_with(s.id::text, $2) limit 2"
    found = await conn.fetch(query, principal, storable(id.strip().lower()))
    return _conversation(found[0]) if len(found) == 1 else None


async def called(conn: Connection, principal: PrincipalId, words: str, limit: int) -> list[Conversation]:
    """Those that their person gave a title with these words, the one last spoken in first."""
    query = f"{_LISTED} and strpos(lower(s.title), lower($2)) > 0 order by s.spoken_at desc limit $3"
    return [_conversation(row) for row in await conn.fetch(query, principal, storable(words), limit)]


async def rename(tx: Connection, session: SessionId, title: str) -> None:
    """Give it a title; an empty one brings that by rule back."""
    await tx.execute("update sessions set title = nullif($2, '') where id = $1", session, storable(title.strip()))


async def stretch(conn: Connection, session: SessionId, first: int, limit: int) -> list[MessageRow]:
    """Its entries from a place on, in order."""
    query = """select m.* from past($1) p cross join lateral (
      select * from messages where session_id = p.id and seq >= $2 and seq <= p.until order by seq limit $3) m
      order by m.seq limit $3"""
    return [MessageRow.of(row) for row in await conn.fetch(query, session, first, limit)]


def _conversation(row: Record) -> Conversation:
    given = one_line(row["given"] or "", 200)
    facts = {**row, "given": given, "label": Label(row["label"]), "open_on": tuple(row["open_on"])}
    title = titles.title(facts.pop("asked"), facts.pop("summary") or "", facts.pop("file") or "")
    return Conversation(**facts, title=given or title)

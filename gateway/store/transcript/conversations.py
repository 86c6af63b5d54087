"""Conversations: the sessions of one person as they list, name, branch and read them.

A screen reads their entries with what belongs to them: versions, costs, commands, and the memories an answer used."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Literal
from uuid import uuid4

from asyncpg import Record

from gateway.domain.conversation.model import Thought, Usage
from gateway.domain.ids import MemoryId, MessageId, PrincipalId, SessionId, TaskId
from gateway.domain.principals import Label
from gateway.domain.text import texts
from gateway.domain.text.texts import one_line, storable
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import columns, fetch_first
from gateway.store.delivery import addresses
from gateway.store.transcript import messages, sessions
from gateway.store.transcript.messages import MessageRow

Mark = Literal["pinned", "archived"]

_LISTED = """
select s.id, s.title as given, s.agent, s.label, s.unattended, s.next_seq - 1 as messages, s.started_at,
       s.spoken_at as last_at, s.ended_at, parent.id as parent, first.text as asked,
       coalesce(at.channel, split_part(replace(first.origin, 'earlier', 'api'), ':', 1)) as channel,
       at.id is not null and not s.unattended and s.agent = 'default'
         and (at.channel not in ('api', 'terminal') or at.account = 'local') as ours,
       (select name from attachments where message_id = first.id order by place limit 1) as file,
       (select left(text, 600) from memories m where m.session_id = s.id and kind = 'summary'
          and superseded_at is null and forgotten_at is null order by id desc limit 1) as summary,
       s.id in (select session_id from tasks where status = 'running') as answering,
       array(select distinct channel from addresses where session_id = s.id order by 1) as open_on,
       (select thread from addresses where session_id = s.id and channel = 'web' order by id limit 1) as place,
       s.pinned_at is not null as pinned, s.archived_at is not null as archived
from sessions s
cross join lateral (
  select id, case when withdrawn is null then left(text, 600) else '' end as text, origin, address_id from (
    (select * from messages where session_id = s.id and kind = 'user' and seq is not null order by seq limit 1)
    union all
    (select * from messages where session_id = s.id and kind = 'user' and seq is null order by id limit 1)) said
  limit 1) first
left join addresses at on at.id = first.address_id and not s.unattended
left join sessions parent on parent.id = s.parent_id and parent.deleted_at is null
where s.principal_id = $1 and s.deleted_at is null """
_NOT_TEMPORARY = """
  and s.id not in (select session_id from addresses where channel = 'web' and starts_with(thread, 'temporary-'))"""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session in which something was said; `channel` is where it began, `open_on` where it goes on now.

    `given` is the title its person chose, or "". `answering`: a turn runs. `ours`: no program's, import's or run's.
    What `parent` holds up to some place is read in it, and counts there alone. `place`: its thread on the page; None if
    it isn't open there.
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
    place: str | None = None
    pinned: bool = False
    archived: bool = False


async def listed(
    conn: Connection,
    principal: PrincipalId,
    limit: int,
    offset: int = 0,
    *,
    unattended: bool = False,
    archived: bool | None = None,
) -> list[Conversation]:
    """Chats but temporary ones, or what ran by itself, the one last spoken in first; None: those archived, too."""
    query = f"""{_LISTED} and s.unattended = $2 and coalesce((s.archived_at is not null) = $5, true) {_NOT_TEMPORARY}
                order by s.spoken_at desc limit $3 offset $4"""
    return [_conversation(row) for row in await conn.fetch(query, principal, unattended, limit, offset, archived)]


async def pinned(conn: Connection, principal: PrincipalId) -> list[Conversation]:
    """The chats that their person pinned, by their time."""
    query = f"{_LISTED} and s.pinned_at is not null order by s.pinned_at"
    return [_conversation(row) for row in await conn.fetch(query, principal)]


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


async def mark(tx: Connection, session: SessionId, mark: Mark | None) -> None:
    """Pin it or archive it, or None: do neither."""
    sql = """update sessions set pinned_at = case when $2 = 'pinned' then now() end,
                                 archived_at = case when $2 = 'archived' then now() end where id = $1"""
    await tx.execute(sql, session, mark)


async def delete(tx: Connection, principal: PrincipalId, session: SessionId) -> None:
    """Take a chat out of all lists and searches, and begin its addresses anew; the caller holds their locks.

    Its rows stay for what was learned from it, until that is erased.
    """
    await addresses.move(tx, session, await sessions.start(tx, principal, Label.OWNER))
    await hide(tx, session)


async def hide(tx: Connection, session: SessionId) -> None:
    """End a session, and take it out of all lists and searches."""
    await tx.execute("update sessions set deleted_at = now(), ended_at = now() where id = $1", session)
    sql = """update memories set forgotten_at = now(), updated_at = now()
             where session_id = $1 and kind in ('turn', 'summary') and forgotten_at is null"""
    await tx.execute(sql, session)
    sql = """insert into memory_progress (session_id, principal_id, seq, place)
             select id, principal_id, next_seq - 1, 0 from sessions where id = $1
             on conflict (session_id) do update set seq = excluded.seq"""
    await tx.execute(sql, session)


async def stretch(conn: Connection, session: SessionId, first: int, limit: int) -> list[MessageRow]:
    """Its entries from a place on, in order."""
    query = """select m.* from past($1) p cross join lateral (
      select * from messages where session_id = p.id and seq >= $2 and seq <= p.until order by seq limit $3) m
      order by m.seq limit $3"""
    return [MessageRow.of(row) for row in await conn.fetch(query, session, first, limit)]


def _conversation(row: Record) -> Conversation:
    given = one_line(row["given"] or "", 200)
    facts = {**row, "given": given, "label": Label(row["label"]), "open_on": tuple(row["open_on"])}
    title = texts.title(facts.pop("asked"), facts.pop("summary") or "", facts.pop("file") or "")
    return Conversation(**facts, title=given or title)


MAX_BRANCH_DEPTH = 32
"""Branches of branches that are made; a retry of a retry is its sibling, and no deeper."""

_SAID = """
select m.* from past($1) p join messages m on m.session_id = p.id and m.seq <= p.until
where m.kind = 'user' and m.id = $2 and m.withdrawn is null and m.origin <> 'deleted'"""
_NEWEST_SAID = """
select m.* from past($1) p cross join lateral (
  select * from messages where session_id = p.id and seq <= p.until and kind = 'user' and withdrawn is null
    and origin <> 'deleted' order by seq desc limit 1) m
order by m.seq desc limit 1"""


async def start_branch(
    tx: Connection, principal: PrincipalId, session: SessionId, seq: int, label: Label, *, unattended: bool = False
) -> SessionId | None:
    """A branch that reads this person's session up to a place, which never changes; `unattended` for a task.

    Its label is at least `label`, and that of all that it reads. None if there are too many branches of branches.
    """
    if await tx.fetchval("select max(depth) from past($1)", session) + 1 >= MAX_BRANCH_DEPTH:
        return None
    branch = SessionId(uuid4())
    # One of which nothing would be read is left out: versions of one message are siblings.
    sql = """insert into sessions (id, principal_id, label, next_seq, parent_id, parent_seq, unattended)
             select $1, $2, $5, $4 + 1, case when parent_seq = $4 then parent_id else id end, $4, $6
             from sessions where id = $3 and principal_id = $2"""
    await tx.execute(sql, branch, principal, session, seq, label, unattended)
    # Its own entries are all that memory has to look at.
    sql = "insert into memory_progress (session_id, principal_id, seq, place) values ($1, $2, $3, 0)"
    await tx.execute(sql, branch, principal, seq)
    past = await messages.transcript(tx, branch)
    await sessions.taint(tx, branch, max((row.label for row in past), default=label))
    return branch


async def said_by_person(conn: Connection, session: SessionId, message: MessageId | None = None) -> MessageRow | None:
    """This message of a person, or their newest, if the conversation or its past has it and a turn has taken it."""
    row = await (conn.fetchrow(_NEWEST_SAID, session) if message is None else conn.fetchrow(_SAID, session, message))
    return MessageRow.of(row) if row else None


async def with_versions(conn: Connection, rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows; those with which a branch begins say of which session, if still there, they are another version."""
    sql = """select s.id, s.parent_id, s.parent_seq from sessions s
             join sessions parent on parent.id = s.parent_id and parent.deleted_at is null where s.id = any($1)"""
    found = await conn.fetch(sql, list({row.session_id for row in rows}))
    begins = {(row["id"], row["parent_seq"] + 1): SessionId(row["parent_id"]) for row in found}
    return [replace(row, version_of=begins.get((row.session_id, row.seq or 0))) for row in rows] if begins else [*rows]


_COSTS = """
with answers as (
  select id, task_id, created_at, lag(created_at) over (partition by task_id order by created_at, id) as since
  from unnest($1::bigint[], $2::uuid[], $3::timestamptz[]) as a (id, task_id, created_at))
select a.id, array_agg(distinct s.name) as models, sum(s.tokens_in)::bigint as read,
       sum(s.tokens_out)::bigint as written, sum(s.tokens_cached)::bigint as cached, sum(s.cost_usd) as cost
from answers a join task_steps s on s.task_id = a.task_id and s.kind = 'model'
  and s.created_at <= a.created_at and (a.since is null or s.created_at > a.since)
group by a.id
"""
"""A task may answer more than once: what it ran after one answer belongs to the next."""

_COMMANDS = """
select i.message_id, i.text from unnest($1::bigint[]) a (id) cross join lateral (
  select message_id, text, kind from inbox where address_id = a.id order by id desc limit 500) i
where i.kind = 'command' and i.message_id = any($2)
"""
"""Only among the newest arrivals, which an index finds: a screen shows no more."""


async def with_thoughts(conn: Connection, rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows, with how long the model thought before each."""
    sql = "select message_id, ms, text <> '' as shown from thoughts where message_id = any($1)"
    thoughts = await conn.fetch(sql, [row.id for row in rows])
    found = {row["message_id"]: {"thought_ms": row["ms"], "thought_shown": row["shown"]} for row in thoughts}
    return [replace(row, **found.get(row.id, {})) for row in rows]


async def thought(conn: Connection, principal: PrincipalId, message: MessageId) -> Thought | None:
    """The thinking before one message of this principal."""
    sql = "select text, ms as milliseconds from thoughts where message_id = $1 and principal_id = $2"
    return await fetch_first(conn, Thought, sql, message, principal)


async def with_costs(conn: Connection, rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows, with models and usage of each answer, the command of each reply to one, and the task of each result."""
    made = await _with_usage(conn, rows)
    replies = [row for row in rows if row.kind == "notice" and row.task_id is None and row.address_id]
    results = [row.task_id for row in rows if row.kind == "assistant" and row.origin == "task"]
    causes = dict[int | TaskId | None, str]()
    if replies:
        found = await conn.fetch(_COMMANDS, list({row.address_id for row in replies}), [row.id for row in replies])
        causes |= {row["message_id"]: row["text"] for row in found}
    if results:
        names = await conn.fetch("select id, input ->> 'name' as name from tasks where id = any($1)", results)
        causes |= {row["id"]: row["name"] or "" for row in names}
    return [replace(row, command=causes.get(row.id) or causes.get(row.task_id) or "") for row in made]


async def _with_usage(conn: Connection, rows: Sequence[MessageRow]) -> list[MessageRow]:
    answers = [row for row in rows if row.kind == "assistant" and row.ends_turn]
    if not answers:
        return list(rows)
    told = columns([(row.id, row.task_id, row.created_at) for row in answers], 3)
    found = {row["id"]: row for row in await conn.fetch(_COSTS, *told)}
    return [_using(row, found[row.id]) if row.id in found else row for row in rows]


def _using(row: MessageRow, costs: Record) -> MessageRow:
    _, models, *used = costs.values()
    return replace(row, models=tuple(models), usage=Usage(*used))


_SEARCHES = frozenset({"memory_search", "memory_get"})


def with_memories(rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows, each answer with all that it used: to what it was reminded of comes what its turn found."""
    found: dict[TaskId | None, list[int]] = {}
    made = list(rows)
    for place, row in enumerate(rows):
        if row.kind == "tool_result" and row.tool in _SEARCHES:
            found.setdefault(row.task_id, []).extend(_memory_ids(row.text))
        elif row.ends_turn:
            used = dict.fromkeys((*row.remembered, *found.pop(row.task_id, ())))
            made[place] = replace(row, remembered=tuple(map(MemoryId, used))) if used else row
    return made


def _memory_ids(result: str) -> Iterable[int]:
    """The rows in a result of `memory_search` or `memory_get`; none in one that failed or was too long to keep."""
    try:
        answer = json.loads(result)
    except ValueError:
        return ()
    rows = answer.get("memories", [answer]) if isinstance(answer, dict) else ()
    return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), int)]


def with_doubts(rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows; each untrusted answer says why, as far as the rows before it show."""
    found, made = dict[tuple[str, str], None](), list(rows)
    for place, row in enumerate(rows):
        if row.label is Label.UNTRUSTED and row.kind == "assistant":
            made[place] = replace(row, doubts=tuple(found))
        elif row.label is Label.UNTRUSTED and row.kind in {"user", "tool_result"}:
            files = [(file.name, file.path) for file in row.attached]
            found |= dict.fromkeys(files or [(row.tool or "a message by someone else", "")])
    return made


async def held_between(
    conn: Connection, principal: PrincipalId, since: datetime, until: datetime
) -> dict[SessionId, set[str]]:
    """A person's chats that were held in this time, the oldest first, each with the providers that have seen it.

    Those that were held in another program aren't among them.
    """
    sql = """select id, array(select distinct split_part(name, '/', 1) from task_steps where kind = 'model'
                               and task_id in (select task_id from messages where session_id = s.id)) as providers
             from sessions s where principal_id = $1 and not unattended and started_at < $3 and spoken_at >= $2
               and deleted_at is null and s.id not in
                 (select session_id from addresses where channel = 'web' and starts_with(thread, 'temporary-'))
               and not exists (select from imports i where i.session_id = s.id) order by started_at, id"""
    return {SessionId(row["id"]): set(row["providers"]) for row in await conn.fetch(sql, principal, since, until)}

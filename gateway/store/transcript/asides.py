"""What a screen shows beside a message: the models and costs of an answer, the command that a notice replies to."""

from collections.abc import Sequence
from dataclasses import replace

from gateway.domain.conversation.model import Usage
from gateway.store.connection.pool import Connection
from gateway.store.transcript.messages import MessageRow

_USED = """
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
"""Of the newest arrivals only, which an index finds: a screen shows no more."""


async def joined(conn: Connection, rows: Sequence[MessageRow]) -> list[MessageRow]:
    """The rows, with models and usage of each answer, and the command of each reply to one."""
    made = await _with_usage(conn, rows)
    replies = [row for row in rows if row.kind == "notice" and row.task_id is None and row.address_id]
    if not replies:
        return made
    found = await conn.fetch(_COMMANDS, list({row.address_id for row in replies}), [row.id for row in replies])
    commands = {row["message_id"]: row["text"] for row in found}
    return [replace(row, command=commands[row.id]) if row.id in commands else row for row in made]


async def _with_usage(conn: Connection, rows: Sequence[MessageRow]) -> list[MessageRow]:
    answers = [row for row in rows if row.kind == "assistant" and row.ends_turn]
    if not answers:
        return list(rows)
    columns = zip(*((row.id, row.task_id, row.created_at) for row in answers), strict=True)
    found = {row["id"]: row for row in await conn.fetch(_USED, *(list(column) for column in columns))}
    return [_using(row, *found[row.id].values()) if row.id in found else row for row in rows]


def _using(
    row: MessageRow, _id: int, models: list[str], read: int, written: int, cached: int, cost: float
) -> MessageRow:
    return replace(row, models=tuple(models), usage=Usage(read, written, cached, cost))

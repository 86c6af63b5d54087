"""Clears old finished work in small batches; never messages, memories, files or the audit trail."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime

from gateway.domain.ids import TaskId
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import row_count, statement

BATCH = 200
"""Trees, or rows of another kind, of one transaction."""

# A tree whose newest change is old, and of which nothing is under way; the oldest first, as they were made.
_OVER = """
select m.id from tasks m
where m.parent_id is null and m.status in ('completed', 'failed', 'cancelled') and m.updated_at < $1
  and not exists (select from tasks t where t.master_id = m.id
                  and (t.updated_at >= $1 or t.status not in ('completed', 'failed', 'cancelled')))
order by m.seq limit $2 for update skip locked
"""
DELIVERIES = """
delete from outbox where id in (
  select id from outbox o where state in ('sent', 'failed', 'uncertain') and created_at < $1
    and not exists (select from schedule_runs r where r.message_id = o.message_id
                    and r.delivered_at is null and r.error is null)
  order by id limit $2)
"""
"""Messages that were sent or given up; rows of a run whose delivery is not decided yet are read once more."""
BUTTONS = """
update inbox set text = '' where id in (
  select id from inbox where kind = 'button' and text <> '' and handled_at < $1 order by id limit $2)
"""
"""The words of buttons. The row stays: its key keeps an old journal from being stored once more."""
THOUGHTS = "delete from thoughts where message_id in (select message_id from thoughts where created_at < $1 limit $2)"
"""The thinking of models, which no prompt, memory or journal has."""


async def clear_trees(tx: Connection, before: datetime, limit: int = BATCH) -> list[TaskId]:
    """Clear whole trees of tasks with their steps and triggers that ended before then; returns their first tasks."""
    over = [TaskId(row["id"]) for row in await tx.fetch(_OVER, before, limit)]
    if over:
        await tx.execute(statement("work/sum_usage"), over)
        await tx.execute("delete from triggers where task_id in (select id from tasks where master_id = any($1))", over)
        await tx.execute("delete from tasks where master_id = any($1)", over)
    return over


async def clear(tx: Connection, what: str, before: datetime) -> int:
    """Clear a batch of `DELIVERIES`, `BUTTONS` or `THOUGHTS` from before then; returns how many rows."""
    return row_count(await tx.execute(what, before, BATCH))


@dataclass(frozen=True, slots=True)
class TableSize:
    """Bytes of a table with its indexes; `grown` since the oldest day that is on record, at most a month ago."""

    name: str
    bytes: int
    grown: int
    days: int


async def note_sizes(tx: Connection, today: date) -> None:
    """Record what each table takes; a year of such days is kept."""
    sql = """insert into table_sizes (day, name, bytes)
             select $1, c.relname, pg_total_relation_size(c.oid) from pg_class c
             where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r'
             on conflict (day, name) do update set bytes = excluded.bytes"""
    await tx.execute(sql, today)
    await tx.execute("delete from table_sizes where day < $1::date - 365", today)


async def largest(conn: Connection, today: date, most: int) -> Sequence[TableSize]:
    """The largest tables now, and how much they have grown."""
    sql = """select c.relname as name, pg_total_relation_size(c.oid) as bytes,
                    pg_total_relation_size(c.oid) - coalesce(s.bytes, pg_total_relation_size(c.oid)) as grown,
                    coalesce($1::date - s.day, 0) as days
             from pg_class c left join lateral (
               select day, bytes from table_sizes
               where name = c.relname and day >= $1::date - 31 order by day limit 1) s on true
             where c.relnamespace = 'supaclaw'::regnamespace and c.relkind = 'r' order by 2 desc limit $2"""
    return [TableSize(**row) for row in await conn.fetch(sql, today, most)]

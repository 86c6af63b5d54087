"""How far each slot came: executed, produced and delivered are noted when they happened, and not before.

What was told is of another time than what was produced if it was said again elsewhere: both get that of their
transaction.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from gateway.domain.ids import AddressId, MessageId, PrincipalId, ScheduleId, TaskId
from gateway.domain.text.texts import storable
from gateway.store.connection.pool import Connection
from gateway.store.connection.rows import fetch_all, fetch_first, statement
from gateway.store.work.schedules import ScheduleRow


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """A settled delivery of a run's result: complete, unless it was `refused` or is `uncertain`."""

    schedule_id: ScheduleId
    slot: datetime
    principal_id: PrincipalId
    task_id: TaskId
    message_id: MessageId
    address_id: AddressId
    produced_at: datetime
    again: bool
    """It has been said elsewhere before."""
    refused: str | None
    uncertain: bool


async def hold(conn: Connection, schedule: ScheduleId) -> ScheduleRow | None:
    """The schedule, until the transaction ends; None when it is gone. The caller holds what else it needs."""
    return await fetch_first(conn, ScheduleRow, "select * from schedules where id = $1 for no key update", schedule)


async def exists(conn: Connection, task: TaskId) -> bool:
    """Whether the task is for a slot of a schedule that is still there."""
    return bool(await conn.fetchval("select exists (select from schedule_runs where task_id = $1)", task))


async def mark_executed(conn: Connection, task: TaskId) -> None:
    """Record that the agent finished."""
    await conn.execute("update schedule_runs set executed_at = now() where task_id = $1", task)


async def mark_produced(conn: Connection, task: TaskId, message: MessageId | None) -> None:
    """Record that there was a result, and the message with it; None if no chat could have it."""
    sql = "update schedule_runs set produced_at = now(), message_id = $2 where task_id = $1"
    await conn.execute(sql, task, message)


async def mark_failed(conn: Connection, task: TaskId, error: str) -> None:
    """Record an error of the run or of its delivery, as one line."""
    await conn.execute("update schedule_runs set error = $2 where task_id = $1", task, storable(error))


async def set_message(conn: Connection, task: TaskId, message: MessageId) -> None:
    """It was said once more, elsewhere."""
    await conn.execute("update schedule_runs set message_id = $2 where task_id = $1", task, message)


async def mark_delivered(conn: Connection, task: TaskId) -> None:
    """The last part of what was told is there."""
    await conn.execute("update schedule_runs set delivered_at = now() where task_id = $1", task)


async def set_failing(conn: Connection, schedule: ScheduleId, *, failing: bool) -> None:
    """Its person has been told that it fails, or that it works again."""
    sql = "update schedules set failing_since = case when $2 then coalesce(failing_since, now()) end where id = $1"
    await conn.execute(sql, schedule, failing)


async def refuse(conn: Connection, channels: Collection[str]) -> None:
    """Fail the pending deliveries of runs on all channels but these, which are the configured ones."""
    sql = """update outbox o set state = 'failed', error = a.channel || ' is not configured any more'
             from schedule_runs r, addresses a
             where r.message_id is not null and r.delivered_at is null and r.error is null
               and o.message_id = r.message_id and o.state = 'pending'
               and a.id = o.address_id and a.channel <> all ($1)"""
    await conn.execute(sql, list(channels))


async def deliver(conn: Connection) -> None:
    """Note as delivered what is there, of schedules that nobody believes to be failing."""
    sql = """update schedule_runs set delivered_at = now()
             where task_id in (
               select r.task_id from schedule_runs r join schedules s on s.id = r.schedule_id
               where r.message_id is not null and r.delivered_at is null and r.error is null and s.failing_since is null
                 and not exists (select from outbox o where o.message_id = r.message_id and o.state <> 'sent'))"""
    await conn.execute(sql)


async def settled_deliveries(conn: Connection) -> list[DeliveryOutcome]:
    """The deliveries that ended but are not recorded yet: complete, refused or uncertain."""
    return await fetch_all(conn, DeliveryOutcome, statement("work/settled_deliveries"))


async def is_current(conn: Connection, arrival: DeliveryOutcome) -> bool:
    """Whether nobody has dealt with it meanwhile; the caller holds its schedule."""
    sql = """select exists (select from schedule_runs
                            where task_id = $1 and message_id = $2 and delivered_at is null and error is null)"""
    return bool(await conn.fetchval(sql, arrival.task_id, arrival.message_id))


async def on_their_way(conn: Connection) -> set[MessageId]:
    """The messages of runs whose delivery is not recorded as complete or failed."""
    sql = """select message_id from schedule_runs
             where message_id is not null and delivered_at is null and error is null"""
    return {row["message_id"] for row in await conn.fetch(sql)}

"""Schedules and what became of their slots."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Self
from uuid import uuid4

from asyncpg import Record

from gateway.domain.ids import AddressId, MessageId, PrincipalId, ScheduleId, TaskId
from gateway.domain.json import JsonObject
from gateway.domain.principals import Label
from gateway.domain.text.texts import storable
from gateway.domain.work.schedules import Misfire, Once, Recurring, ScheduleDefinition, SlotPlan, When
from gateway.domain.work.tasks import Assignment, Lane
from gateway.store.connection.pool import Connection, lock_name
from gateway.store.connection.rows import fetch_all, fetch_first, fetch_one, statement
from gateway.store.migrate import check_not_outdated


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule and how it stands."""

    id: ScheduleId
    principal_id: PrincipalId
    definition: ScheduleDefinition
    address_id: AddressId | None
    label: Label
    origin: str
    next_run_at: datetime | None
    task_id: TaskId | None
    paused_at: datetime | None
    completed_at: datetime | None
    failing_since: datetime | None
    created_at: datetime
    plan: JsonObject | None = None
    """The call of `plan` that its person has confirmed for each run: its arguments, and its result."""

    @classmethod
    def of(cls, row: Record) -> Self:
        """From its row."""
        when: When = Once(row["run_at"]) if row["run_at"] else Recurring(row["cron"]) if row["cron"] else None
        history, misfire = row["include_session_history"], Misfire(row["misfire"])
        definition = ScheduleDefinition(row["name"], row["prompt"], when, row["zone"], misfire, history)
        known = {each.name: row[each.name] for each in fields(cls) if each.name != "definition"}
        return cls(**{**known, "definition": definition, "label": Label(row["label"])})


@dataclass(frozen=True, slots=True)
class Firing:
    """The decision on a due schedule; without an assignment nothing runs and its slots are missed."""

    row: ScheduleRow
    plan: SlotPlan
    assignment: Assignment | None


@dataclass(frozen=True, slots=True)
class RunRow:
    """One slot: what was run for it, and how far that came."""

    schedule_id: ScheduleId
    slot: datetime
    missed: int
    missed_since: datetime | None
    task_id: TaskId | None
    executed_at: datetime | None
    produced_at: datetime | None
    message_id: MessageId | None
    delivered_at: datetime | None
    error: str | None


async def add(
    conn: Connection,
    principal: PrincipalId,
    definition: ScheduleDefinition,
    *,
    next_run_at: datetime | None,
    origin: str,
    label: Label,
    address: AddressId | None = None,
    asked_by: str | None = None,
) -> ScheduleRow | None:
    """A new schedule; the one there is if the same call made it before. None: another live one has the name."""
    sql = """insert into schedules (principal_id, name, prompt, run_at, cron, zone, misfire, include_session_history,
                                    next_run_at, origin, label, address_id, asked_by)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
             on conflict do nothing returning *"""
    values = (*_columns(definition), next_run_at, origin, label, address, asked_by)
    row = await fetch_first(conn, ScheduleRow, sql, principal, *values)
    return await made_by(conn, asked_by) if row is None and asked_by is not None else row


async def hold(conn: Connection, principal: PrincipalId) -> None:
    """Until the transaction ends nobody else does this: what is counted for a principal stays so."""
    await lock_name(conn, f"supaclaw.schedules {principal}")


async def made_by(conn: Connection, call: str) -> ScheduleRow | None:
    """The one that a tool call has made."""
    return await fetch_first(conn, ScheduleRow, "select * from schedules where asked_by = $1", call)


async def update(
    conn: Connection,
    schedule: ScheduleId,
    definition: ScheduleDefinition,
    next_run_at: datetime | None,
    *,
    label: Label,
) -> ScheduleRow | None:
    """Another definition for it, which starts it anew, trusted no more than `label`; a chat not theirs is forgotten.

    None: it is gone, or another live one has the name.
    """
    sql = """update schedules s set name = $2, prompt = $3, run_at = $4, cron = $5, zone = $6, misfire = $7,
               include_session_history = $8, next_run_at = $9, completed_at = null, updated_at = now(),
               label = greatest(label, $10),
               address_id = (select a.id from addresses a where a.id = s.address_id and a.principal_id = s.principal_id)
             where id = $1 and not exists (
               select from schedules o where o.principal_id = s.principal_id and lower(o.name) = lower($2)
                 and o.id <> s.id and o.completed_at is null)
             returning *"""
    return await fetch_first(conn, ScheduleRow, sql, schedule, *_columns(definition), next_run_at, label)


async def set_plan(conn: Connection, schedule: ScheduleId, plan: JsonObject) -> None:
    """Give each run of it this plan, until anything else of the schedule changes."""
    await conn.execute("update schedules set plan = $2, updated_at = now() where id = $1", schedule, plan)


async def pause(conn: Connection, schedule: ScheduleId, *, paused: bool, next_run_at: datetime | None) -> ScheduleRow:
    """Pause a schedule, or resume it at its next slot. An address that was handed over is dropped,
    since no row that a member writes may refer to another's address.
    """
    sql = """update schedules s set paused_at = case when $2 then coalesce(paused_at, now()) end,
               next_run_at = case when completed_at is null then $3::timestamptz end, updated_at = now(),
               address_id = (select a.id from addresses a where a.id = s.address_id and a.principal_id = s.principal_id)
             where id = $1 returning *"""
    return await fetch_one(conn, ScheduleRow, sql, schedule, paused, next_run_at)


async def trust(conn: Connection, schedule: ScheduleId, label: Label) -> None:
    """Its person vouches for it: from now on it has this label."""
    await conn.execute("update schedules set label = $2, updated_at = now() where id = $1", schedule, label)


async def remove(conn: Connection, schedule: ScheduleId) -> bool:
    """Delete it and what is known of its runs; what runs of it now finds it gone and ends."""
    return await conn.fetchval("delete from schedules where id = $1 returning true", schedule) is not None


async def get(conn: Connection, principal: PrincipalId | None, which: str) -> ScheduleRow | None:
    """By its number or its name, a live one before one that is over; of anybody if no principal is given. Held."""
    sql = """select * from schedules where (principal_id = $1 or $1 is null)
               and (id::text = $2 or lower(name) = lower($2))
             order by id::text = $2 desc, completed_at is not null, id desc limit 1 for update"""
    return await fetch_first(conn, ScheduleRow, sql, principal, storable(which))


async def listed(
    conn: Connection, principal: PrincipalId | None, *, everything: bool = False, limit: int = 200
) -> list[ScheduleRow]:
    """The soonest first, then the backlog; `everything` includes what is paused or over."""
    sql = """select * from schedules where (principal_id = $1 or $1 is null)
               and ($2 or (completed_at is null and paused_at is null))
             order by completed_at desc nulls first, next_run_at nulls last, id limit $3"""
    return await fetch_all(conn, ScheduleRow, sql, principal, everything, limit)


async def count(conn: Connection, principal: PrincipalId, *, paused: bool = True, over: bool = False) -> int:
    """How many a principal has."""
    sql = """select count(*) from schedules
             where principal_id = $1 and ($2 or paused_at is null) and ($3 or completed_at is null)"""
    return int(await conn.fetchval(sql, principal, paused, over))


async def runs(conn: Connection, schedule: ScheduleId, limit: int = 20) -> list[RunRow]:
    """Its slots and their runs, the latest first."""
    sql = "select * from schedule_runs where schedule_id = $1 order by slot desc limit $2"
    return await fetch_all(conn, RunRow, sql, schedule, limit)


async def running(conn: Connection) -> set[ScheduleId]:
    """Those whose last run isn't over."""
    sql = """select s.id from schedules s join tasks t on t.id = s.task_id
             where t.status not in ('completed', 'failed', 'cancelled')"""
    return {ScheduleId(row["id"]) for row in await conn.fetch(sql)}


async def due(conn: Connection, now: datetime, limit: int) -> list[ScheduleRow]:
    """Lock due schedules whose last run is over, the longest due first; skip those that another transaction holds.

    Raises `TryAgainLater` in a process older than the schema.
    """
    await check_not_outdated(conn)
    sql = """select s.* from schedules s
             where s.next_run_at <= $1 and s.paused_at is null
               and not exists (select from tasks t where t.id = s.task_id
                               and t.status not in ('completed', 'failed', 'cancelled'))
             order by s.next_run_at limit $2 for no key update of s skip locked"""
    return await fetch_all(conn, ScheduleRow, sql, now, limit)


async def next_due(conn: Connection) -> datetime | None:
    """When the first is due; in the past while its last run isn't over, or another transaction holds it."""
    found: datetime | None = await conn.fetchval("select min(next_run_at) from schedules where paused_at is null")
    return found


async def enqueue(conn: Connection, firings: Sequence[Firing]) -> int:
    """Queue what is to run, each in a session of its own, and move all of them on to their next slot.

    A slot that was dealt with before gets nothing more. The caller holds the rows, from `due`. Returns how many tasks.
    """
    return len(await _queue(conn, firings, on_time=True))


async def fire(conn: Connection, row: ScheduleRow, assignment: Assignment) -> TaskId | None:
    """Run it once more, for `assignment.slot`, besides what is planned; None while it runs."""
    await conn.execute("select from schedules where id = $1 for no key update", row.id)
    queued = await _queue(conn, [Firing(row, SlotPlan(assignment.slot, row.next_run_at), assignment)], on_time=False)
    return queued[0] if queued else None


async def halt(conn: Connection, schedule: ScheduleId, error: str) -> None:
    """Pause a schedule that can't continue, and record why at its due slot. The caller holds it."""
    sql = """with halted as (
               update schedules set paused_at = now(), updated_at = now() where id = $1
               returning id, principal_id, next_run_at
             )
             insert into schedule_runs (schedule_id, slot, principal_id, error)
             select id, next_run_at, principal_id, $2 from halted
             on conflict (schedule_id, slot) do update set error = excluded.error where schedule_runs.task_id is null"""
    await conn.execute(sql, schedule, storable(error))


async def _queue(conn: Connection, firings: Sequence[Firing], *, on_time: bool) -> list[TaskId]:
    if not firings:
        return []
    # One statement for all of them. The run comes first: only who enters a slot there may queue something for it.
    columns = zip(*(_firing(each) for each in firings), strict=True)
    rows = await conn.fetch(statement("work/queue_firings"), *columns, on_time, Lane.AGENTS.value)
    return [TaskId(row["task"]) for row in rows if row["task"]]


def _firing(firing: Firing) -> tuple[object, ...]:
    row, plan, assignment = firing.row, firing.plan, firing.assignment
    slot = plan.slot if assignment else plan.missed_until
    over = plan.next_slot is None and isinstance(row.definition.when, Once)
    run: tuple[object, ...] = (None, None, None, None)
    if assignment and slot:
        dedupe = f"schedule:{row.id}:{slot.astimezone(UTC).isoformat()}"
        run = (uuid4(), uuid4(), dedupe, assignment.model_dump(mode="json"))
    return (row.id, slot, plan.missed, plan.missed_since, *run, plan.next_slot, over)


def _columns(definition: ScheduleDefinition) -> tuple[object, ...]:
    when = definition.when
    at = when.at if isinstance(when, Once) else None
    cron = when.cron if isinstance(when, Recurring) else None
    how = (definition.zone, definition.misfire.value, definition.include_session_history)
    return (storable(definition.name), storable(definition.prompt), at, cron, *how)

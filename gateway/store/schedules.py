"""Schedules and what became of their slots."""

from dataclasses import dataclass
from datetime import datetime
from typing import Self

from asyncpg import Record

from gateway.domain.ids import AddressId, MessageId, PrincipalId, ScheduleId, TaskId
from gateway.domain.principals import Label
from gateway.domain.schedules import Definition, Misfire, Once, Recurring, When
from gateway.domain.texts import storable
from gateway.store.pool import Connection


@dataclass(frozen=True, slots=True)
class ScheduleRow:
    """A schedule and how it stands."""

    id: ScheduleId
    principal_id: PrincipalId
    definition: Definition
    address_id: AddressId | None
    label: Label
    origin: str
    next_run_at: datetime | None
    task_id: TaskId | None
    paused_at: datetime | None
    completed_at: datetime | None
    failing_since: datetime | None
    created_at: datetime

    @classmethod
    def of(cls, row: Record) -> Self:
        """From its row."""
        when: When = Once(row["run_at"]) if row["run_at"] else Recurring(row["cron"]) if row["cron"] else None
        history, misfire = row["include_session_history"], Misfire(row["misfire"])
        return cls(
            id=row["id"],
            principal_id=row["principal_id"],
            definition=Definition(row["name"], row["prompt"], when, row["zone"], misfire, history),
            address_id=row["address_id"],
            label=Label(row["label"]),
            **{name: row[name] for name in ("origin", "next_run_at", "task_id", "paused_at", "completed_at")},
            failing_since=row["failing_since"],
            created_at=row["created_at"],
        )


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
    definition: Definition,
    *,
    next_run_at: datetime | None,
    origin: str,
    label: Label = Label.OWNER,
    address: AddressId | None = None,
    asked_by: str | None = None,
) -> ScheduleRow | None:
    """A new schedule; the one there is if the same call made it before. None: another live one has the name."""
    row = await conn.fetchrow(
        """insert into schedules (principal_id, name, prompt, run_at, cron, zone, misfire, include_session_history,
                                  next_run_at, origin, label, address_id, asked_by)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
           on conflict do nothing returning *""",
        principal,
        *_columns(definition),
        next_run_at,
        origin,
        label,
        address,
        asked_by,
    )
    if row is None and asked_by is not None:
        row = await conn.fetchrow("select * from schedules where asked_by = $1", asked_by)
    return ScheduleRow.of(row) if row else None


async def update(
    conn: Connection, schedule: ScheduleId, definition: Definition, next_run_at: datetime | None
) -> ScheduleRow | None:
    """Another definition for it, which starts it anew. None: it is gone, or another live one has the name."""
    row = await conn.fetchrow(
        """update schedules s set name = $2, prompt = $3, run_at = $4, cron = $5, zone = $6, misfire = $7,
             include_session_history = $8, next_run_at = $9, completed_at = null, updated_at = now()
           where id = $1 and not exists (
             select from schedules o where o.principal_id = s.principal_id and lower(o.name) = lower($2)
               and o.id <> s.id and o.completed_at is null)
           returning *""",
        schedule,
        *_columns(definition),
        next_run_at,
    )
    return ScheduleRow.of(row) if row else None


async def pause(
    conn: Connection, schedule: ScheduleId, *, paused: bool, next_run_at: datetime | None
) -> ScheduleRow | None:
    """Let it rest, or go on at its next slot from now on; None when it is gone."""
    row = await conn.fetchrow(
        """update schedules set paused_at = case when $2 then coalesce(paused_at, now()) end, next_run_at = $3,
             updated_at = now()
           where id = $1 returning *""",
        schedule,
        paused,
        next_run_at,
    )
    return ScheduleRow.of(row) if row else None


async def remove(conn: Connection, schedule: ScheduleId) -> bool:
    """Delete it and what is known of its runs; what runs of it now finds it gone and ends."""
    return await conn.fetchval("delete from schedules where id = $1 returning true", schedule) is not None


async def get(conn: Connection, principal: PrincipalId | None, which: str) -> ScheduleRow | None:
    """By its number or its name, a live one before one that is over; of anybody if no principal is given."""
    row = await conn.fetchrow(
        """select * from schedules where (principal_id = $1 or $1 is null)
             and (id::text = $2 or lower(name) = lower($2))
           order by id::text = $2 desc, completed_at is not null, id desc limit 1""",
        principal,
        which,
    )
    return ScheduleRow.of(row) if row else None


async def listed(
    conn: Connection, principal: PrincipalId | None, *, everything: bool = False, limit: int = 200
) -> list[ScheduleRow]:
    """The soonest first, then the backlog; `everything` includes what is paused or over."""
    rows = await conn.fetch(
        """select * from schedules where (principal_id = $1 or $1 is null)
             and ($2 or (completed_at is null and paused_at is null))
           order by completed_at desc nulls first, next_run_at nulls last, id limit $3""",
        principal,
        everything,
        limit,
    )
    return [ScheduleRow.of(row) for row in rows]


async def count(conn: Connection, principal: PrincipalId) -> int:
    """How many of a principal's are not over."""
    return int(
        await conn.fetchval(
            "select count(*) from schedules where principal_id = $1 and completed_at is null", principal
        )
    )


async def runs(conn: Connection, schedule: ScheduleId, limit: int = 20) -> list[RunRow]:
    """What became of its slots, the latest first."""
    rows = await conn.fetch(
        """select schedule_id, slot, missed, missed_since, task_id, executed_at, produced_at, message_id, delivered_at,
                  error
           from schedule_runs where schedule_id = $1 order by slot desc limit $2""",
        schedule,
        limit,
    )
    return [RunRow(**row) for row in rows]


def _columns(definition: Definition) -> tuple[object, ...]:
    when = definition.when
    return (
        storable(definition.name),
        storable(definition.prompt),
        when.at if isinstance(when, Once) else None,
        when.cron if isinstance(when, Recurring) else None,
        definition.zone,
        definition.misfire.value,
        definition.include_session_history,
    )
